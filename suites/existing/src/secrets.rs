//! Image pull Secrets: named in all pods of a run, and created by others.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use super::{KubernetesError, LIMITS, Options, error::api, limits::ask};

/// Returns when the run's namespace has all of them: a new namespace may get them shortly after its creation. An
/// account that may not read Secrets returns at once; then the pods show whether the image can be pulled.
///
/// # Errors
/// [`KubernetesError::NoPullSecret`].
pub(super) async fn expect(client: &Client, options: &Options) -> Result<(), KubernetesError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &options.namespace);
    let began = Instant::now();
    for name in &options.pods.pull_secrets {
        let what = format!("look for the Secret {name}");
        loop {
            let is_there = match ask(&what, secrets.get_metadata_opt(name)).await? {
                Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(()),
                found => found.map_err(api(&what))?.is_some(),
            };
            if is_there {
                break;
            }
            if options.confined().is_some() || began.elapsed() >= LIMITS.pull_secrets {
                return Err(KubernetesError::NoPullSecret {
                    secret: name.clone(),
                    namespace: options.namespace.clone(),
                });
            }
            sleep(LIMITS.look).await;
        }
    }
    Ok(())
}
