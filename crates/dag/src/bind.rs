//! Automatic `bind_x` and `bind_y` (OpenEC, section 4.4).

use std::collections::BTreeMap;

use crate::{DagError, Ecdag, Vertex};

impl Ecdag {
    /// Both automatic binds: [`Ecdag::auto_bind_x`], then every computation that is not bound to a child is bound
    /// to its first input. Existing binds stay as they are.
    ///
    /// # Errors
    /// `Invalid` when vertex numbers run out.
    pub fn auto_bind(&mut self) -> Result<(), DagError> {
        self.auto_bind_x()?;
        let mut units: Vec<Vertex> = self.binds_x().iter().map(|bind| bind.vertex).collect();
        units.extend(self.joins().keys().filter(|v| self.bind_of(**v).is_none()));
        for unit in units {
            let bound = self.binds_y().contains_key(&unit)
                || self.members(&unit).iter().any(|m| self.binds_y().contains_key(m));
            if !bound {
                let first = self.inputs(unit)[0];
                self.bind_y(unit, first)?;
            }
        }
        Ok(())
    }

    /// Binds together the parents with the same set of more than one child, so that the set is fetched once for
    /// all of them. Parents that are already bound, to others or to a child, are not changed.
    ///
    /// # Errors
    /// `Invalid` when vertex numbers run out.
    pub fn auto_bind_x(&mut self) -> Result<(), DagError> {
        let mut alike: BTreeMap<Vec<Vertex>, Vec<Vertex>> = BTreeMap::new();
        for (&parent, join) in self.joins() {
            let free = self.bind_of(parent).is_none() && !self.binds_y().contains_key(&parent);
            if free && join.children.len() > 1 {
                let mut children = join.children.clone();
                children.sort_unstable();
                alike.entry(children).or_default().push(parent);
            }
        }
        let mut groups: Vec<_> = alike.into_values().filter(|parents| parents.len() > 1).collect();
        groups.sort_unstable();
        for parents in groups {
            self.bind_x(&parents)?;
        }
        Ok(())
    }
}
