package main

import (
	"os"
	"regexp"
)

var umaskLine = regexp.MustCompile(`(?m)^Umask:\s+([0-7]{1,4})$`)

// umaskFor returns the umask of this process, in octal, for sessions that work in a directory of its user; empty
// without a directory, and where the system does not tell it. The system call that reads the umask also changes it, for
// all threads.
func umaskFor(dir string) string {
	if dir == "" {
		return ""
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	found := umaskLine.FindSubmatch(status)
	if found == nil {
		return ""
	}
	return string(found[1])
}
