//! Where a caller has the rights that an answer needs: one review for all namespaces, else one for each, a few at a
//! time.

use std::collections::BTreeSet;

use drover_nomad::{Endpoint, Query, Reach, Resource, Right, Scope, Scopes, World, is_of_job};
use futures::{StreamExt as _, stream};

use crate::answers::Refusal;
use crate::reviews::{Access, Identity, Meanwhile, Reviews};

/// Reviews of one request that are under way at a time.
const AT_A_TIME: usize = 16;

/// What the caller may see, of what is needed.
///
/// # Errors
/// 403 when a right is missing, 503 when the API server does not answer and the caller was not known shortly before.
pub(super) async fn scopes(
    reviews: &Reviews,
    identity: &Identity,
    needed: &[Right],
    world: &World,
) -> Result<Scopes, Refusal> {
    let mut scopes = Scopes::default();
    for right in needed {
        match scope(reviews, identity, right, world).await {
            Ok(scope) => drop(scopes.0.insert(right.resource, scope)),
            Err(refusal) if refusal.code == 403 && right.is_optional => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(scopes)
}

/// What a task may see of its own job, whatever its rights; none: the endpoint shows more, or the caller is no task.
pub(super) fn of_own_job(identity: &Identity, endpoint: &Endpoint, query: &Query) -> Option<Scopes> {
    let (namespace, _) = identity.own_job().filter(|job| is_of_job(endpoint, query, *job))?;
    Some(Scopes([(Resource::Jobs, Scope::Some([namespace.to_owned()].into()))].into()))
}

async fn scope(reviews: &Reviews, identity: &Identity, right: &Right, world: &World) -> Result<Scope, Refusal> {
    let may = async |namespace: &str| reviews.permit(identity, &access(right, namespace), Meanwhile::GoesOn).await;
    match &right.reach {
        Reach::Cluster => may("").await.map(|()| Scope::All),
        Reach::Namespace(name) => may(name).await.map(|()| Scope::Some([name.clone()].into())),
        Reach::Everywhere if reviews.has(identity, &access(right, ""), Meanwhile::GoesOn).await? => Ok(Scope::All),
        Reach::Everywhere => each(reviews, identity, right, world).await,
    }
}

/// The namespaces in which the caller has it.
async fn each(reviews: &Reviews, identity: &Identity, right: &Right, world: &World) -> Result<Scope, Refusal> {
    let mut answers = stream::iter(right.resource.namespaces(world))
        .map(|namespace| async move {
            let has = reviews.has(identity, &access(right, &namespace), Meanwhile::GoesOn).await;
            has.map(|has| has.then_some(namespace))
        })
        .buffer_unordered(AT_A_TIME);
    let mut allowed = BTreeSet::new();
    while let Some(answer) = answers.next().await {
        allowed.extend(answer?);
    }
    Ok(Scope::Some(allowed))
}

/// A right in a namespace, as the API server is asked for it.
pub(super) fn access(right: &Right, namespace: &str) -> Access {
    let name = match right.resource {
        // As the API server asks: as an object of itself.
        Resource::Namespaces => namespace,
        Resource::Metrics => return Access::of_path("/metrics", right.verb.name()),
        Resource::Jobs
        | Resource::Versions
        | Resource::Allocations
        | Resource::Deployments
        | Resource::Nodes
        | Resource::Volumes
        | Resource::HostVolumes => "",
    };
    Access {
        group: right.resource.group(),
        resource: right.resource.plural(),
        subresource: "",
        verb: right.verb.name(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use drover_api::CSIVolume;
    use drover_daemon::monitor::GatewayMetrics;
    use drover_nomad::Verb;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    const OPEN: [&str; 3] = ["many-0007", "many-1000", "many-1999"];
    /// How long a review takes.
    const REVIEW: Duration = Duration::from_millis(6);

    /// What the API server was asked.
    #[derive(Default)]
    struct Asked {
        under_way: AtomicUsize,
        most: AtomicUsize,
        namespaces: Mutex<Vec<String>>,
    }

    /// An API server that takes its time and allows three namespaces.
    fn api_server(asked: Arc<Asked>) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let asked = Arc::clone(&asked);
            async move {
                let under_way = asked.under_way.fetch_add(1, Ordering::Relaxed) + 1;
                asked.most.fetch_max(under_way, Ordering::Relaxed);
                let body = request.into_body().collect_bytes().await.expect("a body");
                let mut review: Value = serde_json::from_slice(&body).expect("a review");
                let namespace = review["spec"]["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
                review["status"] = json!({ "allowed": OPEN.contains(&namespace) });
                let namespace = review["spec"]["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
                asked.namespaces.lock().expect("no panic").push(namespace.to_owned());
                tokio::time::sleep(REVIEW).await;
                asked.under_way.fetch_sub(1, Ordering::Relaxed);
                Ok::<_, Infallible>(http::Response::new(Body::from(review.to_string().into_bytes())))
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn g_043_rights_on_three_of_two_thousand_namespaces_are_found_in_a_second_by_one_review_of_each() {
        let mut world = World::default();
        for n in 0..2000 {
            let volume: CSIVolume = serde_json::from_value(json!({
                "metadata": { "name": "data", "namespace": format!("many-{n:04}"), "uid": format!("uid-{n}"),
                              "resourceVersion": (n + 1).to_string() },
                "spec": { "pluginID": "ebs", "externalID": "v", "capabilities": [] },
            }))
            .expect("a volume");
            world.volumes.put(volume);
        }
        let asked = Arc::<Asked>::default();
        let reviews = Reviews::new(api_server(Arc::clone(&asked)), GatewayMetrics::default());
        let needed =
            [Right { resource: Resource::Volumes, verb: Verb::List, reach: Reach::Everywhere, is_optional: false }];
        let since = Instant::now();
        let found = scopes(&reviews, &Identity::default(), &needed, &world).await.expect("an answer");
        let wanted = Scope::Some(OPEN.map(str::to_owned).into());
        assert_eq!(found.0.get(&Resource::Volumes), Some(&wanted));
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        assert_eq!(asked.most.load(Ordering::Relaxed), AT_A_TIME);
        let mut namespaces = std::mem::take(&mut *asked.namespaces.lock().expect("no panic"));
        namespaces.sort();
        let one_for_all = std::iter::once(String::new());
        assert_eq!(namespaces, one_for_all.chain((0..2000).map(|n| format!("many-{n:04}"))).collect::<Vec<_>>());
        // What is known is not asked for again.
        let again = scopes(&reviews, &Identity::default(), &needed, &world).await.expect("an answer");
        assert_eq!((again.0, asked.namespaces.lock().expect("no panic").len()), (found.0, 0));
    }
}
