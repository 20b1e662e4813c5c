//! Streams that are packed. Decoders that keep a window of what they gave out keep a bounded one.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use drover_core::artifact::Compression;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// Most memory of an xz decoder, in KiB: what `xz -9` needs, twice.
const XZ_MEMORY_KIB: u32 = 128 * 1024;
/// Largest window of a Zstandard frame: what `zstd --long` makes.
const ZSTD_WINDOW: u64 = 128 * 1024 * 1024;

/// The bytes of a file, unpacked.
pub(crate) fn unpacked(file: File, packed: Compression) -> Box<dyn Read> {
    let bytes = BufReader::with_capacity(64 * 1024, file);
    match packed {
        Compression::None => Box::new(bytes),
        Compression::Gz => Box::new(flate2::bufread::MultiGzDecoder::new(bytes)),
        Compression::Bz2 => Box::new(bzip2::bufread::MultiBzDecoder::new(bytes)),
        Compression::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(bytes, true, XZ_MEMORY_KIB)),
        Compression::Zst => Box::new(Frames { state: State::Between(bytes) }),
    }
}

/// One Zstandard frame after the other.
struct Frames<R: BufRead> {
    state: State<R>,
}

enum State<R: BufRead> {
    Between(R),
    In(Box<StreamingDecoder<R, FrameDecoder>>),
    Over,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return Ok(0),
                State::Between(mut bytes) => {
                    if bytes.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    let frame = StreamingDecoder::new_with_max_window_size(bytes, ZSTD_WINDOW);
                    self.state = State::In(Box::new(frame.map_err(io::Error::other)?));
                }
                State::In(mut frame) => {
                    let n_read = frame.read(buffer)?;
                    if n_read > 0 || buffer.is_empty() {
                        self.state = State::In(frame);
                        return Ok(n_read);
                    }
                    self.state = State::Between(frame.into_inner());
                }
            }
        }
    }
}
