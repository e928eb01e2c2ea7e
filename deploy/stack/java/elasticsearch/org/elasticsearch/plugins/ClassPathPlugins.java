package org.elasticsearch.plugins;

import java.util.List;
import org.elasticsearch.Build;
import org.elasticsearch.env.Environment;
import org.elasticsearch.transport.netty4.Netty4Plugin;

/** The plugins of the node, taken from the class path where a distribution has a folder of them. */
public final class ClassPathPlugins extends PluginsService {

    private List<LoadedPlugin> loaded;

    public ClassPathPlugins(Environment environment, PluginsLoader loader) {
        super(environment.settings(), environment.configDir(), loader);
        loaded = List.of(load(new Netty4Plugin()), load(new GreetingPlugin()));
        loadExtensions(loaded);
    }

    /** Asked by the parent's constructor too, before anything is loaded. */
    @Override
    protected List<LoadedPlugin> plugins() {
        return loaded == null ? List.of() : loaded;
    }

    private static LoadedPlugin load(Plugin plugin) {
        Class<?> type = plugin.getClass();
        String version = Build.current().version();
        String java = String.valueOf(Runtime.version().feature());
        var descriptor =
                new PluginDescriptor(
                        type.getSimpleName(),
                        "",
                        version,
                        version,
                        java,
                        type.getName(),
                        null,
                        List.of(),
                        false,
                        false,
                        false,
                        false,
                        PluginDescriptor.DeploymentTarget.ALL);
        return new LoadedPlugin(descriptor, plugin, type.getClassLoader());
    }
}
