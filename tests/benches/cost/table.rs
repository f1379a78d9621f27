//! Measuring in turns, and the lines that are printed of it.

use std::time::{Duration, Instant};

/// A name, the limit to print beside, and what is timed.
pub(crate) type Candidate<'a> = (&'a str, &'a str, &'a mut dyn FnMut() -> Duration);

/// Times the candidates in turns, so that a busy machine slows all alike; the first is what the
/// others are compared with.
pub(crate) fn compare(rounds: usize, candidates: &mut [Candidate<'_>]) {
    let mut times = vec![Vec::new(); candidates.len()];
    for _ in 0..rounds {
        for (times, (.., measure)) in times.iter_mut().zip(candidates.iter_mut()) {
            times.push(measure());
        }
    }
    let first = times[0].clone();
    for ((name, limit, _), times) in candidates.iter().zip(times) {
        line(name, limit, &times, Some(&first));
    }
}

/// One line: the shortest of the times, their quarter and half, the ratios of these two to those
/// of `first`, and the limit.
pub(crate) fn line(name: &str, limit: &str, times: &[Duration], first: Option<&[Duration]>) {
    let (quarter, half) = (quantile(times, 4), quantile(times, 2));
    let ratios = first.map_or_else(
        || " ".repeat(16),
        |first| {
            let ratio =
                |time: Duration, part| time.as_secs_f64() / quantile(first, part).as_secs_f64();
            format!("{:8.2}{:8.2}", ratio(quarter, 4), ratio(half, 2))
        },
    );
    let least = times.iter().min().copied().unwrap_or_default();
    let [least, quarter, half] = [least, quarter, half].map(milliseconds);
    println!("  {name:36}{least:9.2}{quarter:9.2}{half:9.2}{ratios}  {limit}");
}

pub(crate) fn title(text: &str) {
    println!(
        "\n{text:38}{:>9}{:>9}{:>9}{:>8}{:>8}  limit",
        "least ms", "p25", "median", "ratio", "ratio"
    );
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
