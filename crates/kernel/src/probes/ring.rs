//! A BPF ring buffer, read in batches. Layout: kernel/bpf/ringbuf.c (consumer position, producer position, data twice in a row).

use crate::mmap::Shared;
use crate::{Result, os};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// `BPF_RINGBUF_BUSY_BIT`, `BPF_RINGBUF_DISCARD_BIT`.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: usize = 8;

/// A ring and where it is mapped.
#[derive(Debug)]
pub(super) struct Ring {
    fd: OwnedFd,
    consumer: Shared,
    /// Producer position in the first page, then the data, twice.
    producer: Shared,
    bytes: usize,
    page: usize,
}

impl Ring {
    /// Maps the ring of `bytes` behind a map's descriptor.
    pub fn new(fd: OwnedFd, bytes: usize) -> Result<Ring> {
        let page = os::page_bytes();
        let consumer = Shared::map(fd.as_fd(), page, true, "a ring's consumer position")?;
        let producer = Shared::map_from(fd.as_fd(), page, page + 2 * bytes, false, "a ring")?;
        Ok(Ring { fd, consumer, producer, bytes, page })
    }

    /// Hands what has been sent to `take`, oldest first; how many.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let (mut position, mut taken) = (self.consumer.word(0).load(Ordering::Relaxed) as usize, 0);
        let mut buffer = [0u8; 64];
        loop {
            let end = self.producer.word(0).load(Ordering::Acquire) as usize;
            if position >= end {
                return taken;
            }
            while position < end {
                let at = self.page + (position & (self.bytes - 1));
                let length = self.producer.word(at).load(Ordering::Acquire) as u32;
                if length & BUSY != 0 {
                    return taken;
                }
                let bytes = (length & !DISCARDED) as usize;
                // Entries of these programs have at most 64 bytes; the second copy of the data makes each of them one piece.
                if length & DISCARDED == 0 && bytes <= buffer.len() {
                    for (word, to) in buffer.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                        if word * 8 < bytes {
                            *to = self.producer.relaxed(at + HEADER_BYTES + word * 8).to_ne_bytes();
                        }
                    }
                    take(&buffer[..bytes]);
                    taken += 1;
                }
                position += (bytes + HEADER_BYTES).next_multiple_of(8);
                self.consumer.word(0).store(position as u64, Ordering::Release);
            }
        }
    }

    /// Whether something waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.consumer.word(0).load(Ordering::Relaxed) >= self.producer.word(0).load(Ordering::Acquire)
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
