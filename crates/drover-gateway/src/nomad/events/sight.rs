//! What a subscriber may see while its stream is open.
//!
//! Where every namespace is asked for, and the caller may not see them all, a namespace is asked for when something
//! first happens in it: of thousands in which nothing happens the API server is asked for none.

use std::collections::BTreeMap;

use drover_nomad::{Reach, Resource, Right};

use crate::answers::Refusal;
use crate::nomad::scopes::access;
use crate::reviews::{Identity, Meanwhile, Reviews};

/// What a subscriber may see.
pub(super) struct Sight {
    reviews: Reviews,
    identity: Identity,
    /// The rights that must last as long as the stream.
    held: Vec<Right>,
    /// The rights that hold wherever the caller has them, and where that is, as far as it was asked.
    found: BTreeMap<Resource, (Right, BTreeMap<String, bool>)>,
}

impl Sight {
    /// Asks for these rights.
    ///
    /// # Errors
    /// 403 when one is missing, 503 when the API server does not answer.
    pub(super) async fn open(reviews: &Reviews, identity: &Identity, needed: Vec<Right>) -> Result<Self, Refusal> {
        let (reviews, identity) = (reviews.clone(), identity.clone());
        let mut sight = Self { reviews, identity, held: Vec::new(), found: BTreeMap::new() };
        for right in needed {
            match &right.reach {
                Reach::Cluster => sight.may(&right, "").await?,
                Reach::Namespace(name) => sight.may(&right, name).await?,
                Reach::Everywhere => match sight.may(&right, "").await {
                    Ok(()) => {}
                    Err(refusal) if refusal.code == 403 => {
                        sight.found.insert(right.resource, (right, BTreeMap::new()));
                        continue;
                    }
                    Err(refusal) => return Err(refusal),
                },
            }
            sight.held.push(right);
        }
        Ok(sight)
    }

    /// Whether objects of a resource in this namespace are shown.
    ///
    /// # Errors
    /// 503 when it is not known, and the API server does not answer.
    pub(super) async fn has(&mut self, resource: Resource, namespace: &str) -> Result<bool, Refusal> {
        let Some((right, known)) = self.found.get(&resource) else { return Ok(true) };
        if let Some(is_shown) = known.get(namespace) {
            return Ok(*is_shown);
        }
        let is_shown = match self.may(right, namespace).await {
            Ok(()) => true,
            Err(refusal) if refusal.code == 403 => false,
            Err(refusal) => return Err(refusal),
        };
        if let Some((_, known)) = self.found.get_mut(&resource) {
            known.insert(namespace.to_owned(), is_shown);
        }
        Ok(is_shown)
    }

    /// Asks again for all that was granted, and forgets what was not.
    ///
    /// # Errors
    /// 403 when a right has gone, 503 when the API server does not answer.
    pub(super) async fn again(&mut self) -> Result<(), Refusal> {
        for right in &self.held {
            match &right.reach {
                Reach::Cluster | Reach::Everywhere => self.may(right, "").await?,
                Reach::Namespace(name) => self.may(right, name).await?,
            }
        }
        for (right, known) in self.found.values() {
            for namespace in known.iter().filter(|(_, is_shown)| **is_shown).map(|(namespace, _)| namespace) {
                self.may(right, namespace).await?;
            }
        }
        for (_, known) in self.found.values_mut() {
            known.retain(|_, is_shown| *is_shown);
        }
        Ok(())
    }

    async fn may(&self, right: &Right, namespace: &str) -> Result<(), Refusal> {
        self.reviews.permit(&self.identity, &access(right, namespace), Meanwhile::GoesOn).await
    }
}
