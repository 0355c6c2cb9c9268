package remote_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast/agent/model/remote"
)

// A provider turns what the server answered into a failure that the loop understands.
func ExampleStatus() {
	f := remote.Status(http.StatusTooManyRequests, http.Header{"Retry-After": {"7"}}, "", "slow down", time.Now())
	fmt.Println(f.Class, f.RetryAfterSeconds)
	// Output: rate_limit 7
}
