import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's own producers and consumers, which go on until they are told to stop, each in a thread.
 *
 * <p>Reads commands from standard input, one per line, and answers each with a line of JSON:
 * <pre>
 * produce NAME TOPIC KIND            KIND: `named` or `keyed`, and then what it is besides, joined by commas:
 *                                    `transactional`, `cached` (it does not ask for metadata again)
 * acknowledged NAME                  how many messages were acknowledged so far
 * partitions NAME                    how many partitions the producer sees now
 * finish NAME                        stops a producer: acknowledged messages, by partition or key
 * join NAME TOPIC GROUP PROTOCOL     a member of a group; PROTOCOL: classic or consumer
 * read NAME                          how many messages the member has read so far
 * leave NAME                         stops a member: the values of the messages it has read
 * take TOPIC TIMESTAMP               all messages of a topic that are not older: partition, offset and value
 * </pre>
 * A named producer sends to the partitions in turn, a keyed one to a few keys in turn. The messages of each place
 * are numbered: `NAME:PLACE:NUMBER`. An error that a producer reports to its user ends it.
 */
public final class SteadyClients {
    private static final int NAMED = 12;
    private static final int KEYS = 24;
    private static final int TRANSACTION = 8;
    private static final long PAUSE_MS = 5;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration PATIENCE = Duration.ofSeconds(90);
    private static String servers;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        Map<String, Producer> producers = new HashMap<>();
        Map<String, Member> members = new HashMap<>();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = obey(producers, members, line.split(" "));
            } catch (Exception error) {
                error.printStackTrace();
                answer = "{\"error\": " + quoted(line + ": " + error) + "}";
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    private static String obey(Map<String, Producer> producers, Map<String, Member> members, String[] words)
            throws Exception {
        String name = words[1];
        switch (words[0]) {
            case "produce" -> producers.put(name, new Producer(name, words[2], words[3]));
            case "join" -> members.put(name, new Member(words[2], words[3], words[4]));
            case "acknowledged" -> {
                return Long.toString(producers.get(name).total());
            }
            case "partitions" -> {
                return Integer.toString(producers.get(name).partitions());
            }
            case "finish" -> {
                return producers.remove(name).finish();
            }
            case "read" -> {
                return Integer.toString(members.get(name).count());
            }
            case "leave" -> {
                return members.remove(name).finish();
            }
            case "take" -> {
                return take(name, Long.parseLong(words[2]));
            }
            default -> throw new IllegalArgumentException("no such command");
        }
        return "null";
    }

    private static String quoted(String text) {
        return '"' + text.replaceAll("[\\p{Cntrl}]+", " ").replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    private static String list(List<String> values) {
        return values.stream().collect(Collectors.joining(", ", "[", "]"));
    }

    /** Runs in a thread until it is told to stop. What it throws is thrown again to whoever asks. */
    private abstract static class Steady implements Runnable {
        private final Thread thread = new Thread(this);
        private volatile Exception failure;
        protected volatile boolean stops;

        protected void begin() {
            thread.setDaemon(true);
            thread.start();
        }

        protected abstract void work() throws Exception;

        @Override
        public final void run() {
            try {
                work();
            } catch (Exception error) {
                fail(error);
            }
        }

        protected void fail(Exception error) {
            failure = error;
            stops = true;
        }

        protected void check() throws Exception {
            if (failure != null) {
                throw failure;
            }
        }

        protected void end() throws Exception {
            stops = true;
            thread.join(PATIENCE.toMillis());
            check();
            if (thread.isAlive()) {
                throw new IllegalStateException("it does not end");
            }
        }
    }

    private static final class Producer extends Steady {
        private final String name;
        private final String topic;
        private final boolean isKeyed;
        private final boolean isTransactional;
        private final KafkaProducer<String, String> producer;
        private final Map<String, Integer> next = new HashMap<>();
        private final Map<String, Integer> acknowledged = new TreeMap<>();
        private int sent;

        Producer(String name, String topic, String kind) {
            this.name = name;
            this.topic = topic;
            isKeyed = kind.startsWith("keyed");
            isTransactional = kind.contains("transactional");
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", servers);
            settings.put("client.id", name);
            settings.put("linger.ms", 20);
            settings.put("max.block.ms", 60_000);
            settings.put("delivery.timeout.ms", 60_000);
            settings.put("reconnect.backoff.max.ms", 100);
            if (!kind.contains("cached")) {
                settings.put("metadata.max.age.ms", 300);
            }
            if (isTransactional) {
                settings.put("transactional.id", topic + "-" + name);
                settings.put("transaction.timeout.ms", 600_000);
            }
            producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
            begin();
        }

        @Override
        protected void work() throws Exception {
            if (isTransactional) {
                producer.initTransactions();
            }
            while (!stops) {
                if (isTransactional) {
                    transact();
                } else {
                    send(1);
                }
                Thread.sleep(PAUSE_MS);
            }
            producer.flush();
        }

        /** Its messages count when the transaction is committed. */
        private void transact() throws Exception {
            producer.beginTransaction();
            List<String> places = send(TRANSACTION);
            producer.commitTransaction();
            check();
            places.forEach(this::count);
        }

        private List<String> send(int count) {
            List<String> places = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                int turn = sent++;
                String place = isKeyed ? "key-" + turn % KEYS : Integer.toString(turn % NAMED);
                int its = next.merge(place, 1, Integer::sum) - 1;
                String value = name + ":" + place + ":" + its;
                ProducerRecord<String, String> record = isKeyed
                    ? new ProducerRecord<>(topic, place, value)
                    : new ProducerRecord<>(topic, turn % NAMED, null, value);
                producer.send(record, (stored, error) -> {
                    if (error != null) {
                        fail(error);
                    } else if (!isTransactional) {
                        count(place);
                    }
                });
                places.add(place);
            }
            return places;
        }

        private synchronized void count(String place) {
            acknowledged.merge(place, 1, Integer::sum);
        }

        synchronized long total() throws Exception {
            check();
            return acknowledged.values().stream().mapToLong(Integer::longValue).sum();
        }

        int partitions() throws Exception {
            check();
            return producer.partitionsFor(topic).size();
        }

        String finish() throws Exception {
            try {
                end();
            } finally {
                producer.close(Duration.ofSeconds(5));
            }
            synchronized (this) {
                return acknowledged.entrySet().stream()
                    .map(each -> quoted(each.getKey()) + ": " + each.getValue())
                    .collect(Collectors.joining(", ", "{", "}"));
            }
        }
    }

    private static KafkaConsumer<String, String> consumer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", servers);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("metadata.max.age.ms", 300);
        settings.put("reconnect.backoff.max.ms", 100);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static final class Member extends Steady {
        private final KafkaConsumer<String, String> consumer;
        private final List<String> values = new ArrayList<>();

        Member(String topic, String group, String protocol) {
            Map<String, Object> settings = new HashMap<>();
            settings.put("group.id", group);
            settings.put("group.protocol", protocol);
            settings.put("auto.commit.interval.ms", 300);
            if (protocol.equals("classic")) {
                settings.put("session.timeout.ms", 30_000);
            }
            consumer = consumer(settings);
            consumer.subscribe(List.of(topic));
            begin();
        }

        @Override
        protected void work() {
            try (consumer) {
                while (!stops) {
                    for (ConsumerRecord<String, String> each : consumer.poll(POLL)) {
                        synchronized (this) {
                            values.add(quoted(each.value()));
                        }
                    }
                }
            }
        }

        synchronized int count() throws Exception {
            check();
            return values.size();
        }

        String finish() throws Exception {
            end();
            return list(values);
        }
    }

    /** Seeks by time, and reads to the end that the topic has now. */
    private static String take(String topic, long timestamp) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            List<TopicPartition> places = consumer.partitionsFor(topic).stream()
                .map(each -> new TopicPartition(topic, each.partition())).toList();
            consumer.assign(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            Map<TopicPartition, OffsetAndTimestamp> starts =
                consumer.offsetsForTimes(places.stream().collect(Collectors.toMap(each -> each, each -> timestamp)));
            for (TopicPartition each : places) {
                OffsetAndTimestamp start = starts.get(each);
                consumer.seek(each, start == null ? ends.get(each) : start.offset());
            }
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (places.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the end was not reached; found so far: " + found.size());
                }
                for (ConsumerRecord<String, String> each : consumer.poll(POLL)) {
                    found.add("[" + each.partition() + ", " + each.offset() + ", " + quoted(each.value()) + "]");
                }
            }
        }
        return list(found);
    }
}
