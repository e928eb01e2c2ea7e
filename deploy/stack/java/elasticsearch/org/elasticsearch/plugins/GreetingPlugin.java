package org.elasticsearch.plugins;

import java.util.Collection;
import java.util.List;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.elasticsearch.Build;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.cluster.service.ClusterService;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.rest.BaseRestHandler;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;
import org.elasticsearch.xcontent.XContentBuilder;

/** Answers {@code GET /} with the versions, which a distribution does in a module of its own. */
public final class GreetingPlugin extends Plugin implements ActionPlugin {

    private ClusterService cluster;

    @Override
    public Collection<?> createComponents(PluginServices services) {
        cluster = services.clusterService();
        return List.of();
    }

    @Override
    public Collection<RestHandler> getRestHandlers(
            RestHandlersServices services,
            Supplier<DiscoveryNodes> nodes,
            Predicate<NodeFeature> features) {
        return List.of(new Greeting());
    }

    private final class Greeting extends BaseRestHandler {

        @Override
        public String getName() {
            return "greeting";
        }

        @Override
        public List<Route> routes() {
            return List.of(
                    new Route(RestRequest.Method.GET, "/"),
                    new Route(RestRequest.Method.HEAD, "/"));
        }

        @Override
        protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) {
            return channel -> {
                try (XContentBuilder json = channel.newBuilder()) {
                    write(json);
                    channel.sendResponse(new RestResponse(RestStatus.OK, json));
                }
            };
        }

        private void write(XContentBuilder json) throws java.io.IOException {
            Build build = Build.current();
            json.startObject()
                    .field("name", cluster.getNodeName())
                    .field("cluster_name", cluster.getClusterName().value())
                    .field("cluster_uuid", cluster.state().metadata().clusterUUID())
                    .startObject("version")
                    .field("number", build.qualifiedVersion())
                    .field("build_flavor", build.flavor())
                    .field("build_type", build.type().displayName())
                    .field("build_hash", build.hash())
                    .field("build_date", build.date())
                    .field("build_snapshot", build.isSnapshot())
                    .field("lucene_version", org.apache.lucene.util.Version.LATEST.toString())
                    .field("minimum_wire_compatibility_version", build.minWireCompatVersion())
                    .field("minimum_index_compatibility_version", build.minIndexCompatVersion())
                    .endObject()
                    .endObject();
        }
    }
}
