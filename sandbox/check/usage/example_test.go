package usage_test

import (
	"fmt"

	"github.com/holdfast-run/holdfast/sandbox/check/usage"
)

func ExampleOf() {
	fmt.Println(usage.Of("cp") != nil, usage.Of("no-such-program") != nil)
	// Output: true false
}
