package main

import (
	"os"
	"regexp"
)

var umaskLine = regexp.MustCompile(`(?m)^Umask:\s+([0-7]{1,4})$`)

// umaskFor returns the umask of this process, in octal, for sessions that work in a directory of its user; empty
// without a directory, or if the umask cannot be read from /proc. The system call that reads the umask is not used: it
// also changes the umask, for all threads.
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
