package org.elasticsearch.node;

import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.plugins.ClassPathPlugins;
import org.elasticsearch.plugins.PluginsLoader;
import org.elasticsearch.plugins.PluginsService;

/** Runs one Elasticsearch node on the class path: {@code Launcher HOME}, settings in HOME/config. */
public final class Launcher extends Node {

    private Launcher(NodeConstruction construction) {
        super(construction);
    }

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        LogConfigurator.configureESLogging();
        Settings settings = Settings.builder().put("path.home", home.toString()).build();
        Environment environment =
                InternalSettingsPreparer.prepareEnvironment(
                        settings, Map.of(), home.resolve("config"), () -> "local");
        PluginsLoader noFolder =
                PluginsLoader.createPluginsLoader(Set.of(), Set.of(), Map.of(), false);
        NodeServiceProvider services =
                new NodeServiceProvider() {
                    @Override
                    PluginsService newPluginService(Environment of, PluginsLoader loader) {
                        return new ClassPathPlugins(of, loader);
                    }
                };
        Node node =
                new Launcher(
                        NodeConstruction.prepareConstruction(
                                environment, noFolder, services, true));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
        node.start();
        Thread.currentThread().join(); // no thread of the node keeps the process alive
    }

    private static void close(Node node) {
        try {
            node.close();
        } catch (Exception problem) {
            problem.printStackTrace();
        }
    }
}
