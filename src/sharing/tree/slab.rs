//! Values in numbered slots: half the size of pointers, and reused when freed.

use std::marker::PhantomData;

/// A slot of a [`Slab`] of `T`.
pub(super) struct Slot<T>(u32, PhantomData<fn() -> T>);

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slot<T> {}

impl<T> PartialEq for Slot<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Slot<T> {}

impl<T> PartialOrd for Slot<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Slot<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl<T> std::hash::Hash for Slot<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T> Slot<T> {
    /// No slot.
    pub(super) const NONE: Self = Self(u32::MAX, PhantomData);

    /// `None` for [`Slot::NONE`].
    pub(super) fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// Values in slots. Reading a freed slot gives `None`.
pub(super) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<Slot<T>>,
}

impl<T> Slab<T> {
    /// An empty one.
    pub(super) fn new() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Puts a value in. `None` when four thousand million slots are in use.
    pub(super) fn insert(&mut self, value: T) -> Option<Slot<T>> {
        if let Some(slot) = self.free.pop() {
            if let Some(place) = self.values.get_mut(slot.0 as usize) {
                *place = Some(value);
            }
            return Some(slot);
        }
        let number = u32::try_from(self.values.len())
            .ok()
            .filter(|&number| number != u32::MAX)?;
        self.values.push(Some(value));
        Some(Slot(number, PhantomData))
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, slot: Slot<T>) -> Option<T> {
        let value = self.values.get_mut(slot.0 as usize)?.take()?;
        self.free.push(slot);
        Some(value)
    }

    /// The value in a slot.
    pub(super) fn get(&self, slot: Slot<T>) -> Option<&T> {
        self.values.get(slot.0 as usize)?.as_ref()
    }

    /// The value in a slot.
    pub(super) fn get_mut(&mut self, slot: Slot<T>) -> Option<&mut T> {
        self.values.get_mut(slot.0 as usize)?.as_mut()
    }

    /// Every value.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().flatten()
    }

    /// Number of values.
    pub(super) fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    /// Bytes of memory it takes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.values.len() * size_of::<Option<T>>() + self.free.len() * size_of::<Slot<T>>()
    }
}
