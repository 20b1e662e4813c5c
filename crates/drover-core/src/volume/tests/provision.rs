//! What a provider is asked to make, to confirm, to make larger and to delete (section 3).

use drover_api::csi_volume::CapacityRange;

use super::*;
use crate::volume::current::Provided;
use crate::volume::expand::Expand;
use crate::volume::plugin::Plugin;
use crate::volume::provision::{Nameless, is_to_be_made, is_to_be_validated, is_to_grow, may_delete_data};

/// The plugin with these capabilities of its controller; without a controller half where none are given.
fn plugin(capabilities: Option<&[&str]>) -> Plugin {
    let mut plugins = Plugins::default();
    plugins.put_node(&plugin_node("n-1", |info| {
        info.controller = capabilities.is_some();
        info.requires_controller_plugin = capabilities.is_some();
        info.capabilities = capabilities.into_iter().flatten().map(|name| (*name).to_owned()).collect();
    }));
    plugins.get("p").expect("a plugin").clone()
}

fn named(external_id: &str) -> CSIVolumeSpec {
    CSIVolumeSpec { external_id: external_id.to_owned(), ..CSIVolumeSpec::default() }
}

fn with_id(external_id: &str) -> CSIVolumeStatus {
    CSIVolumeStatus { external_id: external_id.to_owned(), ..CSIVolumeStatus::default() }
}

#[test]
fn a_volume_is_made_that_has_no_name_at_a_provider_that_makes_some() {
    let makes = plugin(Some(&["CREATE_DELETE_VOLUME"]));
    let (none, known) = (CSIVolumeStatus::default(), with_id("vol-1"));
    assert!(is_to_be_made(&named(""), &none, Some(&makes)));
    assert!(!is_to_be_made(&named("vol-1"), &none, Some(&makes)), "the spec names one that is there");
    assert!(!is_to_be_made(&named(""), &known, Some(&makes)), "it was made");
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let claimed = CSIVolumeStatus { claims: stage.status().claims, ..none.clone() };
    assert!(!is_to_be_made(&named(""), &claimed, Some(&makes)), "it is used under drover's own id");
    for other in [None, Some(plugin(None)), Some(plugin(Some(&["EXPAND_VOLUME"])))] {
        assert!(!is_to_be_made(&named(""), &none, other.as_ref()), "{other:?}");
    }
}

#[test]
fn a_volume_without_a_name_is_drovers_own_id_only_where_the_plugin_surely_makes_none() {
    for (what, plugin, wanted) in [
        ("not known yet", None, Nameless::Nothing),
        ("it makes some", Some(plugin(Some(&["CREATE_DELETE_VOLUME"]))), Nameless::Nothing),
        ("its controller makes none", Some(plugin(Some(&["EXPAND_VOLUME"]))), Nameless::OwnId),
        ("it has no controller", Some(plugin(None)), Nameless::OwnId),
    ] {
        assert_eq!(Nameless::with(plugin.as_ref()), wanted, "{what}");
    }
}

#[test]
fn data_is_deleted_only_of_the_volume_that_drover_made_and_the_provider_confirmed() {
    let made = |external_id: &str| CSIVolumeStatus {
        created_by_drover: true,
        provider_name: "drover-v1".to_owned(),
        ..with_id(external_id)
    };
    let refused = |spec: &str, status: &CSIVolumeStatus| may_delete_data(&named(spec), status).unwrap_err();
    assert_eq!(may_delete_data(&named(""), &made("vol-1")), Ok(()));
    assert_eq!(may_delete_data(&named("vol-1"), &made("vol-1")), Ok(()));
    let registered =
        "drover has not made this volume at its provider (status.createdByDrover is not set), it was registered";
    assert_eq!(refused("", &with_id("vol-1")), registered);
    assert_eq!(refused("vol-1", &with_id("vol-1")), registered);
    let unconfirmed = "the provider has not confirmed that it made the volume drover-v1, as drover named it there";
    assert_eq!(refused("", &made("")), unconfirmed);
    assert_eq!(refused("vol-1", &made("")), unconfirmed);
    let another = "spec.externalID names another volume than the one that drover has made";
    assert_eq!(refused("vol-2", &made("vol-1")), another);
}

#[test]
fn a_controller_is_asked_once_about_each_generation_of_a_volume_that_is_there() {
    let makes = plugin(Some(&["CREATE_DELETE_VOLUME"]));
    let status = |validated_generation| CSIVolumeStatus { validated_generation, ..with_id("vol-1") };
    let asked = |status: &CSIVolumeStatus, plugin: Option<&Plugin>| is_to_be_validated(&named(""), status, 2, plugin);
    assert!(asked(&status(0), Some(&makes)) && asked(&status(1), Some(&makes)));
    assert!(!asked(&status(2), Some(&makes)), "it has answered");
    assert!(!asked(&CSIVolumeStatus::default(), Some(&makes)), "it is to be made first");
    assert!(!asked(&status(1), None), "there is no plugin to ask");
    assert!(!asked(&status(1), Some(&plugin(None))), "it has no controller");
}

#[test]
fn a_volume_grows_to_the_least_that_is_wanted_and_never_for_less() {
    let grows = plugin(Some(&["EXPAND_VOLUME"]));
    let of = |min: &str, max: &str, capacity: &str, plugin: &Plugin| {
        let range = CapacityRange { min: min.to_owned(), max: max.to_owned() };
        let spec = CSIVolumeSpec { capacity: Some(range), ..CSIVolumeSpec::default() };
        let status = CSIVolumeStatus { capacity: capacity.to_owned(), ..CSIVolumeStatus::default() };
        is_to_grow(&spec, &status, Some(plugin))
    };
    let to = |required, limit| Some(Expand { required, limit });
    assert_eq!(of("2Ki", "", "1Ki", &grows), to(2048, None));
    assert_eq!(of("2Ki", "3Ki", "1Ki", &grows), to(2048, Some(3072)));
    assert_eq!(of("1Ki", "", "1Ki", &grows), None, "it is as large as that");
    assert_eq!(of("1Ki", "", "2Ki", &grows), None, "nothing is made smaller");
    assert_eq!(of("1Ki", "", "", &grows), None, "its size is not known");
    assert_eq!(of("2Ki", "", "1Ki", &plugin(Some(&["CREATE_DELETE_VOLUME"]))), None, "it cannot");
}

#[test]
fn what_a_provider_has_made_is_told_when_the_status_says_all_of_it() {
    let provided =
        Provided { external_id: "vol-1".to_owned(), capacity_bytes: Some(2048), generation: 3, ..Provided::default() };
    let status = |external_id: &str, generation, capacity: &str| CSIVolumeStatus {
        validated_generation: generation,
        capacity: capacity.to_owned(),
        ..with_id(external_id)
    };
    for (status, told) in [
        (status("vol-1", 3, "2048"), true),
        (status("vol-1", 4, "4Ki"), true),
        (status("vol-2", 3, "2048"), false),
        (status("", 3, "2048"), false),
        (status("vol-1", 2, "2048"), false),
        (status("vol-1", 3, "2047"), false),
        (status("vol-1", 3, ""), false),
    ] {
        assert_eq!(provided.is_told_by(&status), told, "{status:?}");
    }
    let larger = Provided { capacity_bytes: Some(2048), ..Provided::default() };
    assert!(larger.is_told_by(&status("vol-9", 0, "2048")), "it says nothing of the id");
    assert!(Provided { generation: 1, ..Provided::default() }.is_told_by(&status("", 1, "")), "nor of the size");
}
