//! Why a source cannot be fetched from, with the remedy.

use super::web_address::WebAddressError;

/// Why a source cannot be fetched from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// It names a way that is not built.
    #[error("getterSource asks for {0}, which is not acted on by this version: {1}")]
    NotYet(&'static str, &'static str),
    /// Files of the node are not fetched.
    #[error("getterSource {0:?} is a file of the node; mount a host volume that has it")]
    Local(String),
    /// It has no scheme.
    #[error("getterSource {0:?} names no way to fetch it; write it as in https://example.com/app.tar.gz")]
    NoScheme(String),
    /// It is no address.
    #[error("getterSource cannot be asked: {0}")]
    Address(#[from] WebAddressError),
    /// No object of a bucket.
    #[error(
        "getterSource {0:?} names no object of a bucket; write it as in s3::https://s3.amazonaws.com/BUCKET/KEY or gs://BUCKET/KEY, for one object: an archive instead of a folder"
    )]
    Bucket(String),
    /// Credentials of S3 that are not all there.
    #[error("getterOptions has one of aws_access_key_id and aws_access_key_secret; give both, or neither")]
    HalfKeys,
    /// No reference of an artifact.
    #[error(
        "getterSource {0:?} is no artifact of a registry; write it as in oci://ghcr.io/org/app:1.2 or oci://ghcr.io/org/app@sha256:<64 hexadecimal digits>"
    )]
    Reference(String),
    /// An option that the source's way does not know.
    #[error("getterOptions.{0} is not for {1}, which takes {2}; remove it")]
    OtherOption(String, &'static str, &'static str),
    /// No repository of git that can be asked.
    #[error(
        "getterSource {0:?} is no repository of git that can be fetched; write it as in git::https://example.com/org/app.git//folder?ref=v1.2 or github.com/org/app"
    )]
    Repository(String),
    /// git by ssh.
    #[error("getterSource {0:?} asks for git by ssh: {1}")]
    Ssh(String, &'static str),
    /// No name of a reference.
    #[error("getterOptions.ref {0:?} is none; give a branch, a tag, or all 40 digits of a commit")]
    GitReference(String),
    /// No depth.
    #[error("getterOptions.depth {0:?} is no whole number from 1 on; remove it: of history nothing is fetched")]
    Depth(String),
    /// A file of a repository without its path.
    #[error(
        "getterMode file needs the file's path in the repository, as in git::https://example.com/app.git//dir/file"
    )]
    NoFile,
    /// A folder of an archive.
    #[error("getterSource names a folder of an archive by //; fetch the whole archive")]
    Folder,
    /// No file name.
    #[error("getterSource names no file; give getterOptions.filename")]
    NoName,
    /// A checksum that is none.
    #[error(
        "getterOptions.checksum {0:?} is none; write it as in sha256:<64 hexadecimal digits>, with md5, sha1, sha256 or sha512"
    )]
    Checksum(String),
    /// An option of a way that is not built.
    #[error("getterOptions.{0} is not acted on by this version: {1}")]
    Option(String, &'static str),
    /// An archive of an unknown kind.
    #[error(
        "getterOptions.archive {0:?} is no kind of archive; give false, or one of tar, tar.gz, tar.bz2, tar.xz, tar.zst, zip, gz, bz2, xz, zst"
    )]
    Archive(String),
    /// Both exclude each other.
    #[error("getterMode file takes the file as it is, and getterOptions.archive unpacks it; remove one of them")]
    FileAndArchive,
    /// A directory that is none.
    #[error("getterMode dir needs an archive; name its kind in getterOptions.archive, as tar.gz, or take mode file")]
    NoDirectory,
    /// A header that is none.
    #[error("getterHeaders {0:?} is no header; take a name and a value of visible characters")]
    Header(String),
}
