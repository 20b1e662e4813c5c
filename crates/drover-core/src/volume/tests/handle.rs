//! Who of several volumes that name the same volume of the provider may be used.

use drover_api::csi_volume::Claim;
use jiff::Timestamp;

use super::*;
use crate::volume::handle::{Handles, Identity};
use crate::volume::provision::Nameless;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn spec(external_id: &str) -> CSIVolumeSpec {
    CSIVolumeSpec { plugin_id: "p".to_owned(), external_id: external_id.to_owned(), ..CSIVolumeSpec::default() }
}

fn held() -> CSIVolumeStatus {
    let claim: Claim =
        serde_json::from_value(serde_json::json!({ "allocID": "a1", "mode": "write" })).expect("a claim");
    CSIVolumeStatus { claims: vec![claim], ..CSIVolumeStatus::default() }
}

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(namespace, name)
}

#[test]
fn the_older_volume_of_a_handle_comes_first_and_then_the_lesser_uid() {
    let mut handles = Handles::default();
    let (shop, blog, mail) = (key("shop", "data"), key("blog", "mine"), key("mail", "box"));
    let id = |volume, second, uid| Identity { volume, created_at: at(second), uid };
    assert_eq!(handles.put(id(&blog, 5, "b"), &spec("vol-1"), None), []);
    assert_eq!(handles.before(&blog, Nameless::Nothing), None);
    assert_eq!(handles.put(id(&shop, 5, "a"), &spec("vol-1"), None), std::slice::from_ref(&blog));
    assert_eq!(handles.before(&blog, Nameless::Nothing), Some(&shop));
    assert_eq!(handles.before(&shop, Nameless::Nothing), None);
    assert_eq!(handles.put(id(&shop, 5, "a"), &spec("vol-1"), None), [], "nothing has changed");
    // Another plugin's volume is another one.
    let other = CSIVolumeSpec { plugin_id: "q".to_owned(), ..spec("vol-1") };
    assert_eq!(handles.put(id(&mail, 1, "c"), &other, None), []);
    assert_eq!(handles.before(&mail, Nameless::Nothing), None);
    // Who holds one goes on, whoever comes.
    assert_eq!(handles.put(id(&blog, 5, "b"), &spec("vol-1"), Some(&held())), [shop.clone(), shop.clone()]);
    assert_eq!(
        (handles.before(&blog, Nameless::Nothing), handles.before(&shop, Nameless::Nothing)),
        (None, Some(&blog))
    );
    assert_eq!(handles.remove(&blog), std::slice::from_ref(&shop));
    assert_eq!(handles.before(&shop, Nameless::Nothing), None);
}

/// times of objects have whole seconds.
#[test]
fn must_survive_x_017_a_volume_that_is_made_in_the_same_second() {
    let mut handles = Handles::default();
    let (shop, blog, mail) = (key("shop", "data"), key("blog", "mine"), key("mail", "box"));
    let id = |volume, second, uid| Identity { volume, created_at: at(second), uid };
    let first = CSIVolumeStatus { modified_at: Some(at(6)), ..CSIVolumeStatus::default() };
    let condition = serde_json::json!({
        "type": "Stalled", "status": "True", "reason": "HandleInUse", "message": "", "lastTransitionTime": at(6),
    });
    let conditions = vec![serde_json::from_value(condition).expect("a condition")];
    let waiting = CSIVolumeStatus { conditions, ..first.clone() };
    handles.put(id(&shop, 5, "b"), &spec("vol-1"), Some(&first));
    for status in [None, Some(&waiting)] {
        handles.put(id(&blog, 5, "a"), &spec("vol-1"), status);
        assert_eq!(handles.before(&shop, Nameless::Nothing), None, "it was there before");
        assert_eq!(handles.before(&blog, Nameless::Nothing), Some(&shop));
    }
    handles.put(id(&mail, 4, "c"), &spec("vol-1"), None);
    assert_eq!(handles.before(&shop, Nameless::Nothing), Some(&mail), "an older one is the first one");
}

#[test]
fn a_volume_without_an_id_names_its_own_where_the_plugin_makes_none() {
    let mut handles = Handles::default();
    let (shop, blog) = (key("shop", "data"), key("blog", "data"));
    handles.put(Identity { volume: &shop, created_at: at(1), uid: "a" }, &spec(""), None);
    handles.put(Identity { volume: &blog, created_at: at(2), uid: "b" }, &spec("data"), None);
    assert_eq!(handles.before(&blog, Nameless::OwnId), Some(&shop));
    assert_eq!(handles.before(&blog, Nameless::Nothing), None, "what is still to be made is no other's");
    assert_eq!(handles.before(&shop, Nameless::Nothing), None);
    // Made, it is what the provider has called it.
    let made = CSIVolumeStatus { external_id: "data".to_owned(), ..CSIVolumeStatus::default() };
    handles.put(Identity { volume: &shop, created_at: at(1), uid: "a" }, &spec(""), Some(&made));
    assert_eq!(handles.before(&blog, Nameless::Nothing), Some(&shop));
}
