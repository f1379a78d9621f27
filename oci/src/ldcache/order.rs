//! The order of a cache. glibc searches it by bisection, so an entry out of its order is not found.

use std::cmp::Ordering;

/// glibc's order of names (`_dl_cache_libcmp`): runs of digits compare as numbers, a digit sorts
/// above anything else. A cache holds its names from the greatest to the least.
pub fn compare(left: &[u8], right: &[u8]) -> Ordering {
    let (mut left, mut right) = (left, right);
    loop {
        match (left.split_first(), right.split_first()) {
            (Some((a, _)), Some((b, _))) if a.is_ascii_digit() && b.is_ascii_digit() => {
                let (a, b) = (number(&mut left), number(&mut right));
                if a != b {
                    return a.cmp(&b);
                }
            }
            (Some((a, _)), _) if a.is_ascii_digit() => return Ordering::Greater,
            (_, Some((b, _))) if b.is_ascii_digit() => return Ordering::Less,
            (Some((a, rest_a)), Some((b, rest_b))) if a == b => {
                (left, right) = (rest_a, rest_b);
            }
            (None, None) => return Ordering::Equal,
            (a, b) => return character(a).cmp(&character(b)),
        }
    }
}

/// The number at the start of `text`, which is taken away. A C `int` as there: a run of more than
/// nine digits overflows, and must do so alike.
fn number(text: &mut &[u8]) -> i32 {
    let mut value = 0_i32;
    while let Some((digit, rest)) = text.split_first().filter(|(byte, _)| byte.is_ascii_digit()) {
        value = value.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'));
        *text = rest;
    }
    value
}

/// A character as C has it, with the sign of the machine's `char`; the end of the text is 0.
fn character(first: Option<(&u8, &[u8])>) -> i32 {
    i32::from(first.map_or(0, |(byte, _)| std::ffi::c_char::from_ne_bytes([*byte])))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_glibc_does() {
        let descending = [
            "libz3.so.4",
            "libz3.so",
            "libzstd.so.1",
            "libz.so.1",
            "libz.so",
            "libx265.so.199",
            "libcuda10.so",
            "libcuda9.so",
            "libcudart.so",
            "libcuda.so.1",
            "libcuda.so",
            "lib-a.so",
        ];
        for pair in descending.windows(2) {
            let order = compare(pair[0].as_bytes(), pair[1].as_bytes());
            assert_eq!(order, Ordering::Greater, "{pair:?}");
        }
    }

    proptest! {
        /// Sorting panics where there is none.
        #[test]
        fn a_total_order_of_any_bytes(
            names in prop::collection::vec(
                prop::collection::vec(prop::sample::select(b"a09.\x7f\x80\xff2147483648".to_vec()), 0..24),
                3,
            ),
        ) {
            let order = |a: usize, b: usize| compare(&names[a], &names[b]);
            for (a, b, c) in [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2)] {
                prop_assert_eq!(order(a, b), order(b, a).reverse());
                if order(a, b).is_ge() && order(b, c).is_ge() {
                    prop_assert!(order(a, c).is_ge());
                }
            }
        }

        #[test]
        fn a_total_order(a in "[a1.0-]{0,8}", b in "[a1.0-]{0,8}", c in "[a1.0-]{0,8}") {
            let (a, b, c) = (a.as_bytes(), b.as_bytes(), c.as_bytes());
            prop_assert_eq!(compare(a, b), compare(b, a).reverse());
            if compare(a, b).is_ge() && compare(b, c).is_ge() {
                prop_assert!(compare(a, c).is_ge());
            }
        }
    }
}
