// Package runtimetest tests the contract of runtime.Runtime as a suite. It also has the Host for
// that: a log in memory and a box of the mem driver.
//
// Tests of runtimes import it. Invariant: the Host follows the engine's rules (a record is all
// or nothing, a crashed server records nothing more, a box outlives its server), so a runtime
// that passes here works with the engine.
package runtimetest
