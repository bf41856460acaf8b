//! Colours of kinds of code for pictures on a light ground, with black text: the hue says the kind, the shade only tells neighbours apart.
//! The same hues as on the page (`ui/src/view/palette.ts`).

use inferno::flamegraph::color::Color;
use lightfoot_model::FrameKind;

/// Shades of one kind.
const SHADES: u32 = 6;

/// First shade and the way to the last: hue in degrees, saturation and lightness in percent, then what hue and lightness change by.
fn scale(kind: Option<FrameKind>) -> [f64; 5] {
    match kind {
        Some(FrameKind::Native) => [30.0, 88.0, 76.0, -12.0, -8.0],
        Some(FrameKind::Kernel) => [212.0, 62.0, 82.0, 10.0, -7.0],
        Some(FrameKind::Inlined) => [50.0, 82.0, 79.0, -7.0, -7.0],
        Some(FrameKind::Jit) => [150.0, 42.0, 78.0, 14.0, -7.0],
        Some(FrameKind::Unknown) => [240.0, 6.0, 85.0, 0.0, -8.0],
        Some(FrameKind::Python) => [182.0, 52.0, 76.0, 12.0, -8.0],
        Some(FrameKind::Ruby) => [334.0, 62.0, 84.0, 14.0, -8.0],
        None => [40.0, 16.0, 88.0, 0.0, -6.0],
    }
}

/// The colour of a label: `kind` of a frame, `None` for threads. The same name has the same shade in every profile.
pub(crate) fn of(kind: Option<FrameKind>, name: &str) -> Color {
    let hash = name.bytes().take(64).fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let part = f64::from((hash >> 4) % SHADES) / f64::from(SHADES - 1);
    let [hue, saturation, lightness, turn, darker] = scale(kind);
    from_hsl(hue + turn * part, saturation / 100.0, (lightness + darker * part) / 100.0)
}

/// Source: CSS Color Module Level 4, 7.1 (HSL to sRGB).
fn from_hsl(hue: f64, saturation: f64, lightness: f64) -> Color {
    let amplitude = saturation * lightness.min(1.0 - lightness);
    let channel = |n: f64| {
        let k = (n + hue / 30.0).rem_euclid(12.0);
        let value = lightness - amplitude * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    Color { r: channel(0.0), g: channel(8.0), b: channel(4.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hsl_of_known_colours() {
        for (hsl, rgb) in [
            ((0.0, 1.0, 0.5), [255, 0, 0]),
            ((120.0, 1.0, 0.25), [0, 128, 0]),
            ((210.0, 0.5, 0.6), [102, 153, 204]),
            ((348.0, 0.0, 0.5), [128, 128, 128]),
        ] {
            let Color { r, g, b } = from_hsl(hsl.0, hsl.1, hsl.2);
            assert_eq!([r, g, b], rgb, "{hsl:?}");
        }
    }

    /// Black text on every shade: WCAG 2.2 wants a contrast of 4.5 to 1, and 7 to 1 is reached.
    #[test]
    fn text_is_legible_on_every_shade_and_kinds_differ() {
        let luminance = |Color { r, g, b }: Color| {
            let linear = |c: u8| {
                let c = f64::from(c) / 255.0;
                if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
        };
        let kinds = FrameKind::ALL.map(Some).into_iter().chain([None]);
        let mut shades: Vec<(Option<FrameKind>, Color)> = Vec::new();
        for kind in kinds {
            for number in 0..200 {
                let color = of(kind, &format!("function_{number}"));
                let contrast = (luminance(color) + 0.05) / 0.05;
                assert!(contrast >= 7.0, "{kind:?} {color:?}: {contrast}");
                shades.push((kind, color));
            }
        }
        for (kind, color) in &shades {
            assert!(shades.iter().all(|(other, same)| other == kind || same != color), "{kind:?} {color:?}");
        }
    }
}
