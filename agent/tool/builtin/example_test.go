package builtin_test

import (
	"fmt"

	"github.com/holdfast-run/holdfast/agent/tool/builtin"
)

func ExampleAll() {
	for _, t := range builtin.All() {
		fmt.Println(t.Spec().Name)
	}
	// Unordered output:
	// Read
	// Write
	// Edit
	// Bash
	// Glob
	// Grep
	// LS
	// TodoWrite
}
