package org.apache.kafka.common.test.junit;

import forebay.ForebayCluster;
import java.util.List;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/**
 * Stands on the class path before Kafka's class of this name, which runs one test on one Kafka cluster.
 * This one runs it on a Forebay cluster.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;

    public RaftClusterInvocationContext(String baseDisplayName, ClusterConfig config, boolean isCombined) {
        this.name = baseDisplayName;
        this.config = config;
    }

    @Override
    public String getDisplayName(int invocationIndex) {
        return name + " [" + invocationIndex + "] " + String.join(",", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        ForebayCluster cluster = new ForebayCluster(config);
        BeforeEachCallback before = context -> {
            if (config.isAutoStart())
                cluster.start();
        };
        AfterTestExecutionCallback after = context -> cluster.stop();
        return List.of(before, after, new ClusterInstanceParameterResolver(cluster));
    }
}
