//! What a port over another shows of it.

/// The methods of a port by which others see what is `below` it.
macro_rules! shows_below {
    ($below:ty) => {
        /// What is below it.
        pub fn below(&self) -> &$below {
            &self.below
        }

        /// What is below it, to be changed while nothing is inside.
        pub fn below_mut(&mut self) -> &mut $below {
            &mut self.below
        }

        /// What is below it, without it; what is inside is lost.
        pub fn into_below(self) -> $below {
            self.below
        }
    };
}
pub(crate) use shows_below;
