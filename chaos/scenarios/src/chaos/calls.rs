//! The calls of a world, as the API gets them.

use harness::{
    history::now_us,
    objects::{Objects, Written, annotation},
    verdict::Halt,
};
use serde_json::json;

use super::{
    shapes::Shapes,
    world::{Call, World},
};

/// Sends a call, before which the API has `world`.
///
/// # Errors
/// The API refuses it.
pub(crate) async fn send(
    objects: &Objects,
    shapes: &Shapes,
    world: &World,
    call: &Call,
) -> Result<Written, Halt> {
    match call {
        Call::Service {
            service,
            to,
            is_new: true,
        } => objects.create(&shapes.service(*service, to)).await,
        Call::Service { service, to, .. } => {
            let mut spec = shapes.service(*service, to)["spec"].take();
            // Immutable, and the same.
            if let Some(fields) = spec.as_object_mut() {
                fields.remove("clusterIP");
            }
            objects
                .patch(&shapes.service_key(*service), json!({ "spec": spec }))
                .await
        }
        Call::Annotate(service) => {
            let at = now_us().to_string();
            objects
                .patch(&shapes.service_key(*service), annotation("plumbline/chaos", &at))
                .await
        }
        Call::DeleteService(service) => objects.delete(&shapes.service_key(*service)).await,
        Call::Slice {
            slice,
            to,
            is_new: true,
        } => objects.create(&shapes.slice(*slice, to)).await,
        Call::Slice { slice, to, .. } => {
            let object = shapes.slice(*slice, to);
            let key = shapes.slice_key(*slice);
            let moves = world.slices.get(slice).is_some_and(|before| before.of != to.of);
            let (endpoints, ports) = (&object["endpoints"], &object["ports"]);
            if moves {
                let labels = &object["metadata"]["labels"];
                let patch =
                    json!({ "metadata": { "labels": labels }, "endpoints": endpoints, "ports": ports });
                objects.patch(&key, patch).await
            } else {
                // Not a patch, in which null means that the field goes.
                objects
                    .replace_fields(&key, &json!({ "endpoints": endpoints, "ports": ports }))
                    .await
            }
        }
        Call::DeleteSlice(slice) => objects.delete(&shapes.slice_key(*slice)).await,
    }
}
