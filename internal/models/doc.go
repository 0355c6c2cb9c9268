// Package models chooses models: it checks model names, finds the provider of each, and prices
// calls.
//
// The app builds one Models from the configured providers; the native runtime calls it. It imports
// agent/model and the vocabulary. Invariant: a name that Check accepted has a provider; a price
// comes from the tables, never from a guess.
package models
