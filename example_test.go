package holdfast_test

import (
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast"
)

// Errors carry a kind, which programs act on, and a hint, which people do.
func ExampleError() {
	err := holdfast.Errorf(holdfast.KindNotFound, "session", "there is no session %s", holdfast.Quote("x")).
		WithHint("list them with: holdfast session list")
	fmt.Println(holdfast.IsKind(err, holdfast.KindNotFound), holdfast.HintOf(err))
	var e *holdfast.Error
	fmt.Println(errors.As(fmt.Errorf("send: %w", err), &e), e.Kind)
	// Output:
	// true list them with: holdfast session list
	// true not_found
}
