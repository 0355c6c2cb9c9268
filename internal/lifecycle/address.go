package lifecycle

import (
	"net"
	"os"
	"path/filepath"
	"strings"
)

// addressFile holds the URL of the server that uses a data directory, for clients that
// were given no URL. The start of a server does not need the file.
const addressFile = "address"

// WriteAddress records the URL of the server that uses a data directory. The file is not synced:
// after a power cut the server is gone anyway, and a start should not wait for the disk.
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
		_ = os.Remove(f.Name()) // ignore this error: the first one is returned
	}
	return err
}

// RemoveAddress removes the address file of a server that stops, unless the file is
// another server's.
func RemoveAddress(dir, url string) error {
	if ReadAddress(dir) != url {
		return nil
	}
	return os.Remove(filepath.Join(dir, addressFile))
}

// ReadAddress returns the URL that the server of a data directory last recorded; empty
// if there is none or the file cannot be read. The server may be gone.
func ReadAddress(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, addressFile))
	if err != nil || len(data) > 300 {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// LocalURL returns the URL by which clients on this machine reach a listener.
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
