//! What many readers wait for is made once.
//!
//! Input: questions of readers that a change has woken. Output: answers; those to the same question about the same
//! state have one maker and share its bytes. Nothing is kept once the last of them has its answer. Must never know what
//! an answer holds.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use drover_nomad::{Endpoint, Query, Reply, Scopes, World};
use tokio::sync::OnceCell;

use crate::answers::Refusal;

/// What an answer depends on.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) world: Arc<World>,
    pub(super) endpoint: Endpoint,
    pub(super) query: Query,
    pub(super) scopes: Scopes,
}

impl Question {
    fn is_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.world, &other.world)
            && self.endpoint == other.endpoint
            && self.scopes == other.scopes
            && self.query.is_as(&other.query)
    }
}

#[derive(Debug)]
struct Shared {
    question: Question,
    reply: OnceCell<Reply>,
}

/// Makes answers; clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct SameAnswers(Arc<Mutex<Weak<Shared>>>);

impl SameAnswers {
    /// The answer to a question: another reader's, or else what `make` makes.
    ///
    /// # Errors
    /// That of `make`; another reader then makes it again.
    pub(super) async fn get(
        &self,
        question: Question,
        make: impl AsyncFnOnce(Question) -> Result<Reply, Refusal>,
    ) -> Result<Reply, Refusal> {
        let shared = {
            let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let same = last.upgrade().filter(|shared| shared.question.is_as(&question));
            same.unwrap_or_else(|| {
                let shared = Arc::new(Shared { question: question.clone(), reply: OnceCell::new() });
                *last = Arc::downgrade(&shared);
                shared
            })
        };
        shared.reply.get_or_try_init(|| make(question)).await.cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    fn question(world: &Arc<World>, endpoint: Endpoint, query: &str) -> Question {
        let query = Query::parse(query).expect("a query");
        Question { world: Arc::clone(world), endpoint, query, scopes: Scopes::default() }
    }

    #[tokio::test]
    async fn the_same_question_is_answered_once_and_nothing_is_kept() {
        let (answers, n_made) = (SameAnswers::default(), AtomicUsize::new(0));
        let (world, newer) = (Arc::new(World::default()), Arc::new(World::default()));
        let ask = async |question: Question| {
            let make = async |question: Question| {
                n_made.fetch_add(1, Ordering::Relaxed);
                // Others ask meanwhile.
                tokio::task::yield_now().await;
                Ok(Reply { body: format!("{:?}", question.query).into_bytes().into(), ..Reply::default() })
            };
            answers.get(question, make).await.expect("an answer")
        };
        let same = (0..100).map(|n| ask(question(&world, Endpoint::Jobs, &format!("prefix=a&index={n}&wait=1m"))));
        let told = join_all(same).await;
        assert!(told.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(n_made.load(Ordering::Relaxed), 1);
        assert!(answers.0.lock().expect("no panic").upgrade().is_none(), "it is kept");

        let others = [
            question(&world, Endpoint::Jobs, "prefix=a"),
            question(&newer, Endpoint::Jobs, "prefix=a"),
            question(&world, Endpoint::Nodes, "prefix=a"),
            question(&world, Endpoint::Jobs, "prefix=b"),
        ];
        join_all(others.map(ask)).await;
        assert_eq!(n_made.load(Ordering::Relaxed), 5);
    }

    #[tokio::test]
    async fn who_fails_leaves_the_question_to_the_next() {
        let (answers, world) = (SameAnswers::default(), Arc::new(World::default()));
        let asked = || question(&world, Endpoint::Jobs, "");
        let fails = answers.get(asked(), async |_| Err(Refusal::new(503, "not now")));
        let works = answers.get(asked(), async |_| Ok(Reply { body: b"[]".to_vec().into(), ..Reply::default() }));
        let (failed, worked) = tokio::join!(fails, works);
        assert_eq!((failed.expect_err("refused").code, worked.expect("an answer").body.n_bytes()), (503, 2));
    }
}
