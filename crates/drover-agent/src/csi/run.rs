//! The loop of the volumes' work: follows plugins, unmounts what is over, answers the controller.

use std::collections::BTreeSet;

use drover_api::client_node::CsiAnswer;
use drover_clock::sleep_until;
use tokio::task::JoinSet;

use super::answers;
use super::mount_table::MountKey;
use super::shared::Csi;

/// Something that was under way.
enum Done {
    Unmounted(MountKey, Result<(), String>),
    Answered(String, Box<CsiAnswer>),
    Followed,
}

impl Csi {
    /// Follows plugins, unmounts what is over and answers the controller, until it is dropped.
    pub(crate) async fn run(self) {
        let mut under_way = JoinSet::new();
        let mut requests = self.0.requests.subscribe();
        requests.mark_changed();
        let mut answering = BTreeSet::new();
        if let Some(dir) = self.0.kubelet_dir.clone() {
            let csi = self.clone();
            under_way.spawn(async move {
                csi.follow_kubelet(&dir).await;
                Done::Followed
            });
        }
        loop {
            for (key, record) in self.take_due() {
                let csi = self.clone();
                under_way.spawn(async move {
                    let result = csi.unmount(&key, &record).await;
                    Done::Unmounted(key, result)
                });
            }
            for task in std::mem::take(&mut *self.0.plugins.begun()) {
                let csi = self.clone();
                under_way.spawn(async move {
                    csi.follow_plugin(task).await;
                    Done::Followed
                });
            }
            tokio::select! {
                biased;
                Some(done) = under_way.join_next() => match done {
                    Ok(Done::Unmounted(key, result)) => self.note_unmount(&key, result).await,
                    Ok(Done::Answered(name, answer)) => {
                        answering.remove(&name);
                        // Who has taken the request back does not read the answer.
                        if requests.borrow().contains_key(&name) {
                            self.publish(|print| drop(print.answers.insert(name, *answer)));
                        }
                    }
                    Ok(Done::Followed) => {}
                    Err(error) => tracing::error!(error = %error, "a part of the volumes' work broke off"),
                },
                Ok(()) = requests.changed() => {
                    let wanted = requests.borrow_and_update().clone();
                    self.publish(|print| print.answers.retain(|name, _| wanted.contains_key(name)));
                    let known = self.0.print.subscribe();
                    for (name, request) in wanted {
                        if !known.borrow().answers.contains_key(&name) && answering.insert(name.clone()) {
                            let csi = self.clone();
                            under_way.spawn(async move {
                                let answer = answers::answer(&csi, &request).await;
                                Done::Answered(name, Box::new(answer))
                            });
                        }
                    }
                }
                () = self.0.wake.notified() => {}
                () = sleep_until(self.next_retry()) => {}
            }
        }
    }
}
