//! What a code costs and how safe it is, computed from the code itself: its decode graphs and its
//! generator, never from formulas about its family.
