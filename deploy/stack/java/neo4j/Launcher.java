import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.neo4j.dbms.api.DatabaseManagementService;
import org.neo4j.dbms.api.DatabaseManagementServiceBuilder;
import org.neo4j.graphdb.GraphDatabaseService;

/**
 * Runs Neo4j on the class path: {@code Launcher HOME}, settings in HOME/neo4j.conf, the password of
 * its first user in HOME/password.
 */
public final class Launcher {

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        DatabaseManagementService server =
                new DatabaseManagementServiceBuilder(home)
                        .loadPropertiesFromFile(home.resolve("neo4j.conf"))
                        .build();
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdown));
        setPassword(server.database("system"), Files.readString(home.resolve("password")).strip());
        Thread.currentThread().join();
    }

    /** Replaces the well-known password, which the server demands to be changed at first login. */
    private static void setPassword(GraphDatabaseService system, String password) {
        boolean first =
                system.executeTransactionally(
                        "SHOW USERS YIELD passwordChangeRequired",
                        Map.of(),
                        users -> Boolean.TRUE.equals(users.next().get("passwordChangeRequired")));
        if (first) {
            system.executeTransactionally(
                    "ALTER USER neo4j SET PASSWORD $password CHANGE NOT REQUIRED",
                    Map.of("password", password));
        }
    }
}
