package check_test

import (
	"fmt"

	"github.com/holdfast-run/holdfast/sandbox/check"
)

func ExampleChecker() {
	c, err := check.New(check.Settings{DeniedPaths: []string{"/workspace/.env"}}, check.Options{Cwd: "/workspace", Home: "/home/agent"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.CheckCommand("ls -l docs") == nil)
	fmt.Println(c.CheckCommand("ls; sort < .env") == nil)
	// Output:
	// true
	// false
}
