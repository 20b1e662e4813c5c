//! Names at the edges of what buckets and registries take.

use super::*;

#[test]
fn a_host_of_amazons_names_bucket_and_region_in_each_of_its_forms() {
    for (host, bucket, region) in [
        ("s3.amazonaws.com", None, None),
        ("s3-eu-west-1.amazonaws.com", None, Some("eu-west-1")),
        ("s3.eu-west-1.amazonaws.com", None, Some("eu-west-1")),
        ("b.s3.amazonaws.com", Some("b"), None),
        ("a.b.s3.eu-west-1.amazonaws.com", Some("a.b"), Some("eu-west-1")),
        ("s3.b.s3-us-west-2.amazonaws.com", Some("s3.b"), Some("us-west-2")),
        ("amazonaws.com", None, None),
        ("ec2.amazonaws.com", None, None),
        ("s3.amazonaws.com.evil.example", None, None),
        ("minio.example", None, None),
    ] {
        let wanted = (bucket.map(str::to_owned), region.map(str::to_owned));
        assert_eq!(of_amazon(host), wanted, "{host}");
    }
}

#[test]
fn a_region_is_the_options_then_the_hosts_then_the_usual_one() {
    for (source, given, region) in [
        ("https://s3.eu-west-1.amazonaws.com/b/k", None, "eu-west-1"),
        ("https://s3.eu-west-1.amazonaws.com/b/k?region=asked", None, "asked"),
        ("https://s3.eu-west-1.amazonaws.com/b/k?region=asked", Some("option"), "option"),
        ("http://minio:9000/b/k", None, "us-east-1"),
    ] {
        let mut options: BTreeMap<String, String> =
            given.map(|it| ("region".to_owned(), it.to_owned())).into_iter().collect();
        let found = S3Object::read(source, &mut options).map(|object| object.region);
        assert_eq!((found.as_deref(), options.len()), (Ok(region), 0), "{source} {given:?}");
    }
}

#[test]
fn a_key_keeps_its_letters_on_the_way_to_the_server() {
    for (source, key, url) in [
        ("s3://b/a%20b/%C3%A9", "a b/é", "https://s3.amazonaws.com/b/a%20b/%C3%A9"),
        ("s3://b/a+b", "a+b", "https://s3.amazonaws.com/b/a%2Bb"),
        ("s3://b//k", "/k", "https://s3.amazonaws.com/b//k"),
        ("http://b.s3.amazonaws.com:8080/k", "k", "http://b.s3.amazonaws.com:8080/k"),
    ] {
        let found = object(source).expect("an object");
        assert_eq!((found.key.as_str(), found.url().as_str()), (key, url), "{source}");
    }
    for wrong in ["s3://b", "s3:///k", "http://minio/b/", "http://minio//k", "s3://b/k/"] {
        assert!(object(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_object_of_googles_storage_has_a_bucket_and_a_name() {
    for (source, object) in [
        ("gs://b/k", Some("b/k")),
        ("gcs://b/k/l", Some("b/k/l")),
        ("gs://b//k", Some("b//k")),
        ("gs:///k", None),
        ("gs://b/k/", None),
        ("gs://b", None),
        ("http://storage.googleapis.com/b/k", Some("b/k")),
        ("https://storage.googleapis.com/b", None),
        ("https://storage.googleapis.com.evil.example/b/k", None),
    ] {
        let wanted = object.map(|object| format!("https://storage.googleapis.com/{object}"));
        assert_eq!(of_google(source).ok(), wanted, "{source}");
    }
}

#[test]
fn a_reference_has_parts_of_small_letters_and_a_tag_or_digest() {
    let digest = format!("sha256:{}", "0f".repeat(32));
    let (long_tag, longer_tag) = ("t".repeat(128), "t".repeat(129));
    let (long, longer) = ("r".repeat(255), "r".repeat(256));
    for (rest, path) in [
        ("a/b-c_d.e:1", Some("a/b-c_d.e/manifests/1".to_owned())),
        ("a:V1.x_y-z", Some("a/manifests/V1.x_y-z".to_owned())),
        (&format!("a@{digest}"), Some(format!("a/manifests/{digest}"))),
        (&format!("a:{long_tag}"), Some(format!("a/manifests/{long_tag}"))),
        (&format!("a:{longer_tag}"), None),
        (&long, Some(format!("{long}/manifests/latest"))),
        (&longer, None),
        ("a:.x", None),
        ("a:-x", None),
        ("a:_x", Some("a/manifests/_x".to_owned())),
        ("a//b", None),
        ("a/", None),
        ("a/-b", None),
        ("a/é", None),
        ("a:1@", None),
        (&format!("a@{}", digest.to_uppercase()), None),
        (&format!("a@{}", digest.replace('f', "F")), None),
        (&format!("a@{digest}0"), None),
        ("a:1:2", None),
    ] {
        let wanted = path.map(|path| format!("https://r.example/v2/{path}"));
        assert_eq!(manifest_of(&format!("oci://r.example/{rest}")).ok(), wanted, "{rest}");
    }
}

#[test]
fn only_a_registry_on_the_loopback_device_is_asked_without_tls() {
    for (registry, scheme) in [
        ("localhost", "http"),
        ("localhost:5000", "http"),
        ("127.0.0.1:5000", "http"),
        ("127.9.9.9", "http"),
        ("[::1]:5000", "http"),
        ("localhost.example", "https"),
        ("10.0.0.7:5000", "https"),
        ("[fd00::1]", "https"),
    ] {
        let wanted = format!("{scheme}://{registry}/v2/a/manifests/latest");
        assert_eq!(manifest_of(&format!("oci://{registry}/a")), Ok(wanted));
    }
}
