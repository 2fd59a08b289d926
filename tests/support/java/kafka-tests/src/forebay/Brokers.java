package forebay;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** Asks the Python process that started this one for brokers: one line of JSON each way. */
final class Brokers {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Brokers() {}

    static JsonNode ask(Map<String, Object> request) {
        int port = Integer.getInteger("forebay.brokers");
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.getOutputStream().write((JSON.writeValueAsString(request) + "\n").getBytes(StandardCharsets.UTF_8));
            var lines = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
            String line = lines.readLine();
            if (line == null)
                throw new IllegalStateException("no answer to " + request);
            JsonNode answer = JSON.readTree(line);
            if (answer.has("error"))
                throw new IllegalStateException(answer.get("error").asText());
            return answer;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
