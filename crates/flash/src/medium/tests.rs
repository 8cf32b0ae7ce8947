//! Tests of the medium in memory: what was stored comes back, by whichever way it is kept.

use super::*;
use crate::Dimensions;
use proptest::prelude::*;

fn geometry() -> Geometry {
    let dim = Dimensions { groups: 2, chunks: 3, pages: 4, planes: 2, ..Dimensions::LEAST };
    Geometry::new(dim).unwrap()
}

#[test]
fn keeps_data_of_any_size() {
    for kept in [4096u32, 8, 0] {
        let g = geometry();
        let mut m = RamMedium::new(&g, kept).unwrap();
        let at = g.ppa(1, 0, 2, 6);
        let data = vec![0x5a; 2 * kept as usize];
        assert_eq!(m.program(at, 2, &data, &[0; 2 * TAG_BYTES]), Moved::Done);
        let mut back = vec![0; 2 * kept as usize];
        assert_eq!(m.read(at, 2, &mut back, &mut []), Moved::Done);
        assert_eq!(back, data);
    }
}

#[test]
fn whole_blocks_come_back_whole_on_every_medium() {
    for kept in [4096u32, 8, 0] {
        let g = geometry();
        let mut m = RamMedium::new(&g, kept).unwrap();
        let data: Vec<u8> = (0..2 * BLOCK_BYTES).map(|i| i as u8).collect();
        let mut back = vec![0; data.len()];
        for at in [g.ppa(0, 0, 1, 4), g.ppa(0, 0, 1, 6)] {
            assert_eq!(m.program(at, 2, &data, &[7; 2 * TAG_BYTES]), Moved::Done);
        }
        let (mut tags, at) = ([0; TAG_BYTES], g.ppa(0, 0, 1, 5));
        assert_eq!(m.read(at, 1, &mut back[..4096], &mut tags), Moved::Done);
        assert_eq!((&back[..4096], tags), (&data[4096..], [7; TAG_BYTES]));
        assert_eq!(m.read(at, 2, &mut back, &mut []), Moved::Done);
        assert_eq!(back[4096..], data[..4096]);
        // Tags alone, and what was given up.
        assert_eq!(m.read(at, 1, &mut [], &mut tags), Moved::Done);
        assert_eq!(m.reset(g.ppa(0, 0, 1, 0)), Moved::Done);
        let gone = if kept == 4096 { Moved::Done } else { Moved::Failed };
        assert_eq!(m.read(at, 1, &mut back[..4096], &mut []), gone);
    }
}

fn words() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..1000,
        1 => Just(u64::MAX),
        1 => Just(u64::from(u32::MAX)),
        1 => any::<u64>()
    ]
}

/// Tags of a chunk, none of those that come without, and whether it is reset then.
fn round() -> impl Strategy<Value = (Vec<Option<(u64, u64)>>, bool)> {
    let some = prop::option::weighted(0.2, (words(), words()));
    let tags = prop_oneof![
        Just(vec![None; 8]),
        prop::collection::vec(some, 8),
        prop::collection::vec((words(), words()).prop_map(Some), 8)
    ];
    (tags, prop::bool::weighted(0.8))
}

proptest! {
    #[test]
    fn tags_come_back_as_they_were(rounds in prop::collection::vec(round(), 3)) {
        let g = geometry();
        let mut m = RamMedium::new(&g, 0).unwrap();
        // Over the same chunk, so that what is kept of one round is not of the next.
        for (tags, is_reset) in rounds {
            for (i, &tag) in tags.iter().enumerate() {
                let mut bytes = [0; TAG_BYTES];
                let at = g.ppa(1, 0, 1, i as u32);
                if let Some((id, seq)) = tag {
                    Tag { id, seq }.store(&mut bytes);
                    m.program(at, 1, &[], &bytes);
                } else {
                    m.program(at, 1, &[], &[]);
                }
                m.read(at, 1, &mut [], &mut bytes);
                let (id, seq) = tag.unwrap_or_default();
                prop_assert_eq!(Tag::load(&bytes), Tag { id, seq });
            }
            let mut back = [0xaa; 8 * TAG_BYTES];
            m.read(g.ppa(1, 0, 1, 0), 8, &mut [], &mut back);
            for (i, &tag) in tags.iter().enumerate() {
                let (id, seq) = tag.unwrap_or_default();
                prop_assert_eq!(Tag::load(&back[i * TAG_BYTES..]), Tag { id, seq });
            }
            if is_reset {
                m.reset(g.ppa(1, 0, 1, 0));
            }
        }
    }
}
