package lifecycle

import (
	"net"
	"os"
	"path/filepath"
	"strings"
)

// addressFile holds the URL of the server that uses a data directory, for clients
// that were given none. A start does not need it.
const addressFile = "address"

// WriteAddress notes where the server of a data directory listens.
func WriteAddress(dir, url string) error {
	name := filepath.Join(dir, addressFile)
	f, err := os.CreateTemp(dir, addressFile+".*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(url + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error that matters is the first one
	}
	return err
}

// RemoveAddress removes the note of a server that stops, unless it is another's.
func RemoveAddress(dir, url string) error {
	if ReadAddress(dir) != url {
		return nil
	}
	return os.Remove(filepath.Join(dir, addressFile))
}

// ReadAddress is the URL that the server of a data directory noted last; empty
// without one. The server may be gone.
func ReadAddress(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, addressFile))
	if err != nil || len(data) > 300 {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// LocalURL is how clients of this machine reach a listener.
func LocalURL(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "http://" + addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.To4() == nil {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}
