import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own share consumer as a load: the members of share groups, many in one process, and a producer.
 *
 * <p>Reads commands from standard input, one per line, and answers each with lines of JSON:
 * <pre>
 * open CREW SERVERS TOPIC PARTITIONS GROUP MEMBERS   members that join the group
 * fill CREW MESSAGES                                 what is to be consumed
 * consume CREW MESSAGES WINDOW                       answers when WINDOW of them are acknowledged, and when all are
 * deliver CREW MESSAGES INTERVAL_US                  one by one: nanoseconds from sending to delivery, of each
 * close CREW
 * </pre>
 * A message counts as acknowledged when the broker has confirmed it. Members have the client's defaults: a poll
 * acknowledges what the poll before it has returned.
 */
public final class ShareLoad {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long PATIENCE_S = 60;
    private static int valueBytes;

    public static void main(String[] arguments) throws Exception {
        valueBytes = Integer.parseInt(arguments[0]);
        Map<String, Crew> crews = new HashMap<>();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            try {
                obey(crews, words);
            } catch (Exception error) {
                error.printStackTrace();
                say("{\"error\": \"%s: %s\"}", words[0], error.toString().replaceAll("[\"\\\\\\s]+", " "));
            }
        }
        System.exit(0);
    }

    private static void obey(Map<String, Crew> crews, String[] words) throws Exception {
        String name = words[1];
        switch (words[0]) {
            case "open" -> {
                int partitions = Integer.parseInt(words[4]), members = Integer.parseInt(words[6]);
                crews.put(name, new Crew(words[2], words[3], partitions, words[5], members));
                say("{}");
            }
            case "fill" -> {
                crews.get(name).fill(Integer.parseInt(words[2]));
                say("{}");
            }
            case "consume" -> crews.get(name).consume(Long.parseLong(words[2]), Long.parseLong(words[3]));
            case "deliver" -> {
                Queue<Long> taken = crews.get(name).deliver(Integer.parseInt(words[2]), Long.parseLong(words[3]));
                say("{\"nanoseconds\": %s}", taken);
            }
            case "close" -> {
                crews.remove(name).close();
                say("{}");
            }
            default -> throw new IllegalArgumentException("no such command");
        }
    }

    private static void say(String form, Object... values) {
        System.out.println(String.format(form, values));
        System.out.flush();
    }

    private interface Handler {
        void handle(ConsumerRecords<byte[], byte[]> records);
    }

    /** The members of one group, each with a thread of its own while there is something to do. */
    private static final class Crew {
        private final String servers;
        private final String topic;
        private final int partitions;
        private final List<KafkaShareConsumer<byte[], byte[]>> members = new ArrayList<>();
        private final ExecutorService threads;
        private final AtomicLong acknowledged = new AtomicLong();
        private volatile Exception failure;

        Crew(String servers, String topic, int partitions, String group, int count) throws Exception {
            this.servers = servers;
            this.topic = topic;
            this.partitions = partitions;
            threads = Executors.newFixedThreadPool(count);
            Map<String, Object> settings = Map.of("bootstrap.servers", servers, "group.id", group);
            for (int number = 0; number < count; number++) {
                KafkaShareConsumer<byte[], byte[]> member =
                    new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                member.setAcknowledgementCommitCallback((offsets, error) -> {
                    if (error == null) {
                        offsets.values().forEach(each -> acknowledged.addAndGet(each.size()));
                    } else {
                        failure = error;
                    }
                });
                member.subscribe(List.of(topic));
                members.add(member);
            }
            join(pollUntil(0, records -> { }));  // the first poll of each joins
        }

        void fill(int messages) throws Exception {
            try (KafkaProducer<byte[], byte[]> producer = producer(20)) {
                byte[] value = new byte[valueBytes];
                for (int number = 0; number < messages; number++) {
                    send(producer, number, value);
                }
            }
            check();
        }

        void consume(long messages, long window) throws Exception {
            long started = System.nanoTime();
            List<Future<?>> work = pollUntil(messages, records -> { });
            while (acknowledged.get() < window && work.stream().anyMatch(each -> !each.isDone())) {
                Thread.sleep(1);
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            say("{\"acknowledged\": %d, \"seconds\": %s}", acknowledged.get(), seconds);
            join(work);
            say("{\"acknowledged\": %d}", acknowledged.get());
        }

        /** The next is sent when the interval is over, whether or not the last has arrived. */
        Queue<Long> deliver(int messages, long intervalMicroseconds) throws Exception {
            Queue<Long> taken = new ConcurrentLinkedQueue<>();
            List<Future<?>> work = pollUntil(messages, records -> {
                for (ConsumerRecord<byte[], byte[]> each : records) {
                    taken.add(System.nanoTime() - ByteBuffer.wrap(each.value()).getLong());
                }
            });
            try (KafkaProducer<byte[], byte[]> producer = producer(0)) {
                producer.partitionsFor(topic);  // connected before the first is timed
                for (int number = 0; number < messages; number++) {
                    byte[] value = new byte[valueBytes];
                    ByteBuffer.wrap(value).putLong(System.nanoTime());
                    send(producer, number, value);
                    LockSupport.parkNanos(intervalMicroseconds * 1000);
                }
            }
            join(work);
            return taken;
        }

        void close() throws Exception {
            List<Future<?>> work = new ArrayList<>();
            for (KafkaShareConsumer<byte[], byte[]> member : members) {
                work.add(threads.submit(() -> member.close()));
            }
            try {
                join(work);
            } finally {
                threads.shutdownNow();
            }
        }

        /** All members poll, each at least once, until so many messages are acknowledged. */
        private List<Future<?>> pollUntil(long messages, Handler handler) {
            acknowledged.set(0);
            long deadline = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
            List<Future<?>> work = new ArrayList<>();
            for (KafkaShareConsumer<byte[], byte[]> member : members) {
                work.add(threads.submit(() -> {
                    do {
                        handler.handle(member.poll(POLL));
                    } while (acknowledged.get() < messages && failure == null && System.nanoTime() < deadline);
                    if (acknowledged.get() < messages && failure == null) {
                        throw new TimeoutException(acknowledged + " of " + messages + " are acknowledged");
                    }
                    return null;
                }));
            }
            return work;
        }

        private void join(List<Future<?>> work) throws Exception {
            for (Future<?> each : work) {
                each.get(2 * PATIENCE_S, TimeUnit.SECONDS);
            }
            check();
        }

        private void check() throws Exception {
            if (failure != null) {
                throw failure;
            }
        }

        private KafkaProducer<byte[], byte[]> producer(int lingerMs) {
            Map<String, Object> settings = Map.of(
                "bootstrap.servers", servers, "acks", "1", "enable.idempotence", false, "linger.ms", lingerMs);
            return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        }

        private void send(KafkaProducer<byte[], byte[]> producer, int number, byte[] value) {
            producer.send(new ProducerRecord<>(topic, number % partitions, null, value), (stored, error) -> {
                if (error != null) {
                    failure = error;
                }
            });
        }
    }
}
