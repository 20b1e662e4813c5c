//! What an order downloads: one file mostly, of a registry one for each layer.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use drover_core::artifact::{FetchWay, S3Keys, S3Object};
use rusty_s3::{Bucket, Credentials, S3Action as _, UrlStyle};

use crate::budget::Budget;
use crate::download::{ANYTHING, Ask};
use crate::exchange::Web;
use crate::oci;
use crate::order::Order;
use crate::part::{Form, Part};

/// The file of a download.
const DOWNLOAD: &str = "download";
/// How long a signature counts: one request begins within that.
const SIGNED_FOR: Duration = Duration::from_mins(15);

/// Downloads all of an order into a folder.
pub(crate) async fn download(order: &Order, web: Web<'_>, folder: &Path) -> Result<Vec<Part>, String> {
    let plan = &order.plan;
    if plan.way == FetchWay::Oci {
        return oci::download(order, web, folder).await;
    }
    let (signed, none) = (signed(&plan.way)?, BTreeMap::new());
    // A header that is not signed may be one too many for the bucket, and what a bucket is asked says who asks.
    let headers = if signed.is_some() { &none } else { &plan.headers };
    let checksum = plan.checksum.as_ref().map(|checksum| (checksum, "getterOptions.checksum"));
    let ask = Ask { url: signed.as_deref().unwrap_or(&plan.url), headers, asks: ANYTHING, checksum };
    let part = Part { file: folder.join(DOWNLOAD), form: Form::Archive(plan.form), name: plan.file_name.clone() };
    web.download_plain(ask, &part.file, &mut Budget::new(order.limits)).await?;
    Ok(vec![part])
}

/// The address of an object with a signature; none: requests are not signed.
fn signed(way: &FetchWay) -> Result<Option<String>, String> {
    let FetchWay::S3(object) = way else { return Ok(None) };
    let S3Object { endpoint, bucket, key, is_path_style, region, keys: Some(keys) } = &**object else {
        return Ok(None);
    };
    let endpoint = endpoint.parse().map_err(|error| format!("{endpoint}: {error}"))?;
    let style = if *is_path_style { UrlStyle::Path } else { UrlStyle::VirtualHost };
    let bucket = Bucket::new(endpoint, style, bucket.clone(), region.clone()).map_err(|error| error.to_string())?;
    let S3Keys { id, secret, token } = keys.clone();
    let credentials = match token {
        Some(token) => Credentials::new_with_token(id, secret, token),
        None => Credentials::new(id, secret),
    };
    Ok(Some(bucket.get_object(Some(&credentials), key).sign(SIGNED_FOR).to_string()))
}
