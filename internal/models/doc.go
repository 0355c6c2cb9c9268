// Package models is the choice of models: which names there are, who answers to
// them, and what they cost.
//
// The app builds one from the providers that are configured; the native runtime
// asks it. It imports agent/model and the vocabulary. Invariant: a name that
// Check accepted has a provider; a price is taken from the table by its exact
// name, never guessed.
package models
