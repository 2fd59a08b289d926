package forebay;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/** Runs the tests of classes by JUnit, but for methods that follow a minus, and prints each result as JSON. */
public final class RunTests implements TestExecutionListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final PrintStream out;
    private final Map<String, Long> begun = new LinkedHashMap<>();

    private RunTests(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) {
        PrintStream out = System.out;
        System.setOut(System.err); // tools under test print as well
        Set<String> left = Arrays.stream(arguments).filter(word -> word.startsWith("-"))
            .map(word -> word.substring(1)).collect(Collectors.toSet());
        PostDiscoveryFilter filter = descriptor -> FilterResult.includedIf(
            !(descriptor.getSource().orElse(null) instanceof MethodSource method && left.contains(method.getMethodName())));
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
            .selectors(Arrays.stream(arguments).filter(word -> !word.startsWith("-")).map(word -> selectClass(word)).toList())
            .filters(filter)
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .configurationParameter("junit.jupiter.execution.timeout.default", System.getProperty("forebay.timeout", "90 s"))
            .configurationParameter("junit.jupiter.execution.timeout.thread.mode.default", "SEPARATE_THREAD")
            .build();
        LauncherFactory.create().execute(request, new RunTests(out));
        System.exit(0); // a client that a test has left open shall not keep this alive
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        begun.put(test.getUniqueId(), System.currentTimeMillis());
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        boolean isFailedContainer = test.isContainer() && result.getStatus() == TestExecutionResult.Status.FAILED;
        if (!test.isTest() && !isFailedContainer)
            return;
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("method", method(test));
        line.put("name", test.getDisplayName());
        line.put("status", result.getStatus().name());
        line.put("ms", System.currentTimeMillis() - begun.get(test.getUniqueId()));
        result.getThrowable().ifPresent(error -> line.put("error", text(error)));
        try {
            out.println(JSON.writeValueAsString(line));
            out.flush();
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String method(TestIdentifier test) {
        return test.getSource().orElse(null) instanceof MethodSource source ? source.getMethodName() : "";
    }

    private static String text(Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        return text.toString().substring(0, Math.min(text.getBuffer().length(), 6000));
    }
}
