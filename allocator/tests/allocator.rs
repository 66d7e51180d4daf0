//! Tests of the allocator and its metrics, in a test program that uses it as its `#[global_allocator]`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::{
    hint::black_box,
    sync::{Mutex, PoisonError},
};

use allocator::{Figures, HeapCollector};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tikv_jemalloc_ctl::{Access, AsName, background_thread, max_background_threads};

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::ALLOCATOR;

/// Lock that keeps the test with large allocations from running at the same time as the test that measures memory
/// usage.
static ALONE: Mutex<()> = Mutex::new(());

/// Size of the test allocation in bytes; far larger than all concurrent allocations of the test program.
const BYTES: usize = 64 << 20;

#[test]
fn allocated_memory_is_in_use_until_it_is_freed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = Figures::read().unwrap();
    let held = black_box(vec![1_u8; BYTES]);
    let with = Figures::read().unwrap();
    let grown = with.in_use_bytes - before.in_use_bytes;
    // Other tests of this program allocate and free small amounts concurrently.
    let about = BYTES as u64 / 2..2 * BYTES as u64;
    assert!(about.contains(&grown), "{grown} more than {before:?}");
    assert!(with.resident_bytes >= with.in_use_bytes, "{with:?}");
    drop(held);
    let after = Figures::read().unwrap();
    assert!(after.in_use_bytes < before.in_use_bytes + BYTES as u64 / 2, "{after:?} after {before:?}");
}

#[test]
fn freed_memory_in_thread_caches_is_not_in_use() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let before = Figures::read().unwrap();
    let (freed, has_freed) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // Allocates as many blocks of every cached size as the cache can hold.
        for size in (1..=28).map(|number| number * 1024) {
            let held: Vec<_> = (0..40).map(|_| black_box(vec![1_u8; size])).collect();
            drop(held);
        }
        freed.send(()).unwrap();
        let _end = stopped.recv();
    });
    has_freed.recv().unwrap();
    let with = Figures::read().unwrap();
    let kept: usize = b"stats.arenas.4096.tcache_bytes\0"[..].name().read().unwrap();
    drop(stop);
    thread.join().unwrap();
    assert!(kept > 500 << 10, "{kept} bytes are kept for threads");
    assert!(with.in_use_bytes < before.in_use_bytes + (200 << 10), "{with:?} after {before:?}, {kept} kept");
}

#[test]
fn the_settings_are_those_that_are_compiled_in() {
    assert!(background_thread::read().unwrap());
    assert_eq!(max_background_threads::read().unwrap(), 1);
    let arenas: u32 = b"opt.narenas\0"[..].name().read().unwrap();
    let decay_ms: isize = b"opt.dirty_decay_ms\0"[..].name().read().unwrap();
    assert_eq!((arenas, decay_ms), (4, 1000));
}

#[test]
fn the_figures_are_gauges_under_the_prefix_of_the_registry() {
    let mut registry = Registry::with_prefix("tidegate_some");
    registry.register_collector(Box::new(HeapCollector));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for name in ["tidegate_some_heap_in_use_bytes", "tidegate_some_heap_resident_bytes"] {
        assert!(text.contains(&format!("# TYPE {name} gauge\n")), "{text}");
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
        assert!(value.parse::<u64>().unwrap() > 0, "{text}");
    }
}
