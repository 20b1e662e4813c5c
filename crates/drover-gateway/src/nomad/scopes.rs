//! Where a caller has the rights that an answer needs: one review for all namespaces, else one for each, a few at a
//! time.

use std::collections::BTreeSet;

use drover_nomad::{Reach, Resource, Right, Scope, Scopes, World};
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

async fn scope(reviews: &Reviews, identity: &Identity, right: &Right, world: &World) -> Result<Scope, Refusal> {
    let may = async |namespace: &str| reviews.permit(identity, &access(right, namespace), Meanwhile::GoesOn).await;
    match &right.reach {
        Reach::Cluster => may("").await.map(|()| Scope::All),
        Reach::Namespace(name) => may(name).await.map(|()| Scope::Some([name.clone()].into())),
        Reach::Everywhere => match may("").await {
            Ok(()) => Ok(Scope::All),
            Err(refusal) if refusal.code == 403 => each(reviews, identity, right, world).await,
            Err(refusal) => Err(refusal),
        },
    }
}

/// The namespaces in which the caller has it.
async fn each(reviews: &Reviews, identity: &Identity, right: &Right, world: &World) -> Result<Scope, Refusal> {
    let mut answers = stream::iter(right.resource.namespaces(world))
        .map(|namespace| async move {
            let answer = reviews.permit(identity, &access(right, &namespace), Meanwhile::GoesOn).await;
            (namespace, answer)
        })
        .buffer_unordered(AT_A_TIME);
    let mut allowed = BTreeSet::new();
    while let Some((namespace, answer)) = answers.next().await {
        match answer {
            Ok(()) => drop(allowed.insert(namespace)),
            Err(refusal) if refusal.code == 403 => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(Scope::Some(allowed))
}

/// A right in a namespace, as the API server is asked for it.
pub(super) fn access(right: &Right, namespace: &str) -> Access {
    // A namespace is asked for as the API server asks: as an object of itself.
    let name = if right.resource == Resource::Namespaces { namespace } else { "" };
    Access {
        group: right.resource.group(),
        resource: right.resource.plural(),
        subresource: "",
        verb: right.verb.name(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}
