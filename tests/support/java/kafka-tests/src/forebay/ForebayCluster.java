package forebay;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.test.TestUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;

/** A cluster of Forebay brokers for one of Kafka's tests, which knows them by the protocol only. */
public final class ForebayCluster implements ClusterInstance {
    private final ClusterConfig config;
    private boolean started;
    private boolean stopped;
    private int id = -1;
    private String bootstrap = "";
    private final Set<Integer> down = new HashSet<>();
    private final Map<Integer, KafkaBroker> proxies = new HashMap<>();

    public ForebayCluster(ClusterConfig config) {
        this.config = config;
    }

    // -- life ---------------------------------------------------------------------------------------------

    @Override
    public void start() {
        if (started)
            return;
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT)
            throw new UnsupportedOperationException("clusters without TLS and logins only");
        Map<String, Object> request = new HashMap<>();
        request.put("do", "start");
        request.put("brokers", config.numBrokers());
        request.put("settings", config.serverProperties());
        request.put("own_settings", config.perServerOverrideProperties());
        JsonNode answer = Brokers.ask(request);
        id = answer.get("cluster").asInt();
        bootstrap = answer.get("bootstrap").asText();
        started = true;
    }

    @Override
    public boolean started() {
        return started;
    }

    @Override
    public void stop() {
        if (started && !stopped)
            Brokers.ask(Map.of("do", "stop", "cluster", id));
        stopped = true;
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public void shutdownBroker(int brokerId) {
        Brokers.ask(Map.of("do", "stop_broker", "cluster", id, "broker", brokerId));
        down.add(brokerId);
    }

    @Override
    public void startBroker(int brokerId) {
        Brokers.ask(Map.of("do", "start_broker", "cluster", id, "broker", brokerId));
        down.remove(brokerId);
    }

    boolean isDown(int brokerId) {
        return down.contains(brokerId);
    }

    // -- what it is ---------------------------------------------------------------------------------------

    @Override
    public Type type() {
        return Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public String bootstrapServers() {
        return bootstrap;
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        List<Integer> ports = new ArrayList<>();
        for (String address : bootstrap.split(","))
            ports.add(Integer.parseInt(address.substring(address.lastIndexOf(':') + 1)));
        return ports;
    }

    @Override
    public Set<Integer> brokerIds() {
        return IntStream.range(0, config.numBrokers()).boxed().collect(Collectors.toSet());
    }

    @Override
    public ListenerName clientListener() {
        return ListenerName.normalised("PLAINTEXT");
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    @Override
    public String clusterId() {
        try (Admin admin = admin()) {
            return admin.describeCluster().clusterId().get();
        } catch (InterruptedException | ExecutionException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    // -- waiting, by the protocol -------------------------------------------------------------------------

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(
                () -> nodes(admin) == config.numBrokers(), 60_000L, "not all brokers are known to each other");
        }
    }

    private static int nodes(Admin admin) {
        try {
            return admin.describeCluster().nodes().get().size();
        } catch (InterruptedException | ExecutionException error) {
            return -1;
        }
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        waitForTopic(topic, partitions);
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        waitForTopic(topic, 0);
    }

    /** As every broker sees it, each asked by itself. */
    private void waitForTopic(String topic, int partitions) throws InterruptedException {
        for (String address : bootstrap.split(",")) {
            try (Admin admin = admin(Map.of("bootstrap.servers", address))) {
                TestUtils.waitForCondition(
                    () -> partitionsWithLeader(admin, topic) == partitions,
                    60_000L,
                    topic + " has not got " + partitions + " partitions at " + address);
            }
        }
    }

    private static int partitionsWithLeader(Admin admin, String topic) {
        try {
            TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            return (int) found.partitions().stream().filter(ForebayCluster::isLed).count();
        } catch (ExecutionException error) {
            return error.getCause() instanceof UnknownTopicOrPartitionException ? 0 : -1;
        } catch (InterruptedException error) {
            return -1;
        }
    }

    private static boolean isLed(TopicPartitionInfo partition) {
        return partition.leader() != null && !partition.leader().isEmpty();
    }

    @Override
    public void ensureConsistentMetadata() {}

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {}

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        Set<AccessControlEntry> wanted = new HashSet<>(entries);
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(() -> acls(admin, filter).equals(wanted), 60_000L, "no ACLs " + wanted);
        }
    }

    private static Set<AccessControlEntry> acls(Admin admin, AclBindingFilter filter) {
        try {
            return admin.describeAcls(filter).values().get().stream().map(AclBinding::entry).collect(Collectors.toSet());
        } catch (InterruptedException | ExecutionException error) {
            return Set.of();
        }
    }

    // -- what only a Kafka has ----------------------------------------------------------------------------

    private static UnsupportedOperationException noKafka(String what) {
        return new UnsupportedOperationException("the test reads " + what + ", not the protocol");
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        for (int broker : brokerIds())
            proxies.computeIfAbsent(broker, number -> BrokerProxy.of(this, number));
        return proxies;
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        throw noKafka("objects of Kafka's controllers");
    }

    @Override
    public Set<Integer> controllerIds() {
        throw noKafka("Kafka's controllers");
    }

    @Override
    public ListenerName controllerListenerName() {
        throw noKafka("Kafka's controllers");
    }

    @Override
    public String bootstrapControllers() {
        throw noKafka("Kafka's controllers");
    }

    @Override
    public List<Authorizer> authorizers() {
        throw noKafka("objects of Kafka's authorizers");
    }
}
