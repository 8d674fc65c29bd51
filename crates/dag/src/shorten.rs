//! Graphs of shortened stripes: leaves that are known to be zero are removed.

use std::collections::BTreeSet;

use crate::{DagError, Ecdag, Vertex};

impl Ecdag {
    /// The graph without the leaves `absent`, which are known to be zero, and the targets that become zero. A join
    /// that loses all its children is zero too and is also removed. A computation that was bound to a removed
    /// vertex is bound to the first of its remaining inputs. Vertices, including `bind_x` vertices, keep their
    /// numbers.
    ///
    /// # Errors
    /// `Invalid` when an absent vertex is joined; `Cycle`.
    pub fn without_leaves(&self, absent: &BTreeSet<Vertex>) -> Result<(Self, Vec<Vertex>), DagError> {
        if let Some(vertex) = absent.iter().find(|v| self.joins().contains_key(v)) {
            return Err(DagError::Invalid {
                what: format!("absent {vertex}"),
                expected: "a leaf".into(),
                got: "a joined vertex".into(),
            });
        }
        let mut gone = absent.clone();
        let mut graph = Self::new(self.n(), self.w());
        for parent in self.topological()? {
            let Some(join) = self.joins().get(&parent) else { continue };
            let left = join.children.iter().zip(&join.coefs).filter(|(child, _)| !gone.contains(child));
            let (children, coefs): (Vec<_>, Vec<_>) = left.map(|(child, coef)| (*child, *coef)).unzip();
            if children.is_empty() {
                gone.insert(parent);
            } else {
                graph.join(parent, &children, &coefs)?;
            }
        }
        graph.keep_binds(self, &gone)?;
        let zero = self.targets().into_iter().filter(|target| gone.contains(target)).collect();
        Ok((graph, zero))
    }

    /// Copies the binds of `whole` for the vertices that are not `gone`.
    fn keep_binds(&mut self, whole: &Self, gone: &BTreeSet<Vertex>) -> Result<(), DagError> {
        for bind in whole.binds_x() {
            let members: Vec<_> = bind.members.iter().copied().filter(|m| !gone.contains(m)).collect();
            if !members.is_empty() {
                self.bind_x_as(bind.vertex, &members)?;
            }
        }
        for (&parent, &child) in whole.binds_y() {
            let inputs = self.inputs(parent);
            if let Some(first) = inputs.first() {
                self.bind_y(parent, if inputs.contains(&child) { child } else { *first })?;
            }
        }
        self.reserve(whole.vertex_bound() as u32);
        Ok(())
    }
}
