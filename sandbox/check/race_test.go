//go:build race

package check

// raced: the race detector is on, which multiplies what a test takes of memory.
const raced = true
