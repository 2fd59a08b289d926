package forebay;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.metadata.MetadataCache;

/**
 * The object that a test of Kafka takes for a broker. It does the little that can be done by the protocol, or by
 * starting and stopping a process. A test that looks further inside fails.
 */
final class BrokerProxy implements InvocationHandler {
    private final ForebayCluster cluster;
    private final int id;

    private BrokerProxy(ForebayCluster cluster, int id) {
        this.cluster = cluster;
        this.id = id;
    }

    static KafkaBroker of(ForebayCluster cluster, int id) {
        return proxy(KafkaBroker.class, new BrokerProxy(cluster, id));
    }

    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) {
        switch (method.getName()) {
            case "metadataCache":
                return proxy(MetadataCache.class, this::askMetadata);
            case "boundPort":
                return cluster.brokerBoundPorts().get(id);
            case "isShutdown":
                return cluster.isDown(id);
            case "shutdown":
                if (!cluster.isDown(id))
                    cluster.shutdownBroker(id);
                return null;
            case "awaitShutdown": // shutdown has waited
                return null;
            case "startup":
                if (cluster.isDown(id))
                    cluster.startBroker(id);
                return null;
            default:
                return onObject(proxy, method, arguments);
        }
    }

    private Object askMetadata(Object proxy, Method method, Object[] arguments) throws Exception {
        try (Admin admin = cluster.admin()) {
            switch (method.getName()) {
                case "getAliveBrokerNodes":
                    return new ArrayList<>(admin.describeCluster().nodes().get());
                case "numPartitions":
                    return description(admin, (String) arguments[0]).map(found -> found.partitions().size());
                default:
                    return onObject(proxy, method, arguments);
            }
        }
    }

    private static Optional<TopicDescription> description(Admin admin, String topic) throws InterruptedException {
        try {
            return Optional.of(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic));
        } catch (ExecutionException error) {
            return Optional.empty();
        }
    }

    private static Object onObject(Object proxy, Method method, Object[] arguments) {
        switch (method.getName()) {
            case "hashCode":
                return System.identityHashCode(proxy);
            case "equals":
                return proxy == arguments[0];
            case "toString":
                return "a Forebay broker";
            default:
                throw new UnsupportedOperationException("the test reads " + method.getName() + " of Kafka's broker, not the protocol");
        }
    }
}
