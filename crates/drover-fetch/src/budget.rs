//! What is left of the limits of a fetch.

use std::io::{self, Read, Write};

use crate::order::FetchLimits;

/// What is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    limits: FetchLimits,
    bytes: u64,
    files: u64,
}

impl Budget {
    pub(crate) fn new(limits: FetchLimits) -> Self {
        Self { limits, bytes: limits.bytes, files: limits.files }
    }

    /// Takes one file or directory.
    pub(crate) fn take_file(&mut self) -> Result<(), String> {
        self.files = self.files.checked_sub(1).ok_or_else(|| self.too_many_files())?;
        Ok(())
    }

    /// Whether so many are too many, which an archive may say at its begin.
    pub(crate) fn check_files(&self, n_files: u64) -> Result<(), String> {
        if n_files > self.files { Err(self.too_many_files()) } else { Ok(()) }
    }

    /// Takes bytes.
    pub(crate) fn take_bytes(&mut self, n_bytes: u64) -> Result<(), String> {
        self.bytes = self.bytes.checked_sub(n_bytes).ok_or_else(|| {
            format!("it has more than {} bytes, which is the node's limit (artifacts.maxSizeMB)", self.limits.bytes)
        })?;
        Ok(())
    }

    /// Copies all that comes, as far as there is room.
    pub(crate) fn copy(&mut self, from: &mut dyn Read, to: &mut dyn Write) -> Result<(), String> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let n_read = match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n_read) => n_read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("it cannot be unpacked: {error}")),
            };
            self.take_bytes(n_read as u64)?;
            to.write_all(&buffer[..n_read]).map_err(|error| format!("it cannot be written: {error}"))?;
        }
    }

    fn too_many_files(&self) -> String {
        format!(
            "it has more than {} files and directories, which is the node's limit (artifacts.maxFiles)",
            self.limits.files
        )
    }
}

/// A stream that ends with an error after so many bytes: also what is skipped in it has been unpacked.
pub(crate) struct Metered<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Metered<R> {
    pub(crate) fn new(inner: R, most: u64) -> Self {
        Self { inner, left: most }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(n_read as u64).ok_or_else(|| {
            io::Error::other("it has more bytes than the node's limit (artifacts.maxSizeMB) when it is unpacked")
        })?;
        Ok(n_read)
    }
}
