//! Measuring in turns, and the lines that are printed of it.

use std::time::{Duration, Instant};

/// A name, and what is timed under it.
pub(crate) type Candidate<'a> = (&'a str, &'a mut dyn FnMut() -> Duration);

/// Times the candidates in turns, so that a busy machine slows all alike; the first is what the
/// others are compared with.
pub(crate) fn compare(rounds: usize, candidates: &mut [Candidate<'_>]) {
    let mut times = vec![Vec::new(); candidates.len()];
    for _ in 0..rounds {
        for (times, (_, measure)) in times.iter_mut().zip(candidates.iter_mut()) {
            times.push(measure());
        }
    }
    let first = times[0].clone();
    for ((name, _), times) in candidates.iter().zip(times) {
        line(name, &times, Some(&first));
    }
}

/// One line: quarter and half of the times, and their ratios to those of `first`.
pub(crate) fn line(name: &str, times: &[Duration], first: Option<&[Duration]>) {
    let (quarter, half) = (quantile(times, 4), quantile(times, 2));
    let ratios = first.map_or_else(String::new, |first| {
        let ratio = |time: Duration, part| time.as_secs_f64() / quantile(first, part).as_secs_f64();
        format!("{:8.2}{:8.2}", ratio(quarter, 4), ratio(half, 2))
    });
    println!("  {name:44}{:9.2}{:9.2}{ratios}", milliseconds(quarter), milliseconds(half));
}

pub(crate) fn title(text: &str) {
    println!("\n{text:46}{:>9}{:>9}{:>8}{:>8}", "p25 ms", "median", "ratio", "ratio");
}

pub(crate) fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// The time below which one of `part` parts lies.
fn quantile(times: &[Duration], part: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / part]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
