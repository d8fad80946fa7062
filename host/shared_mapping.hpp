// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One descriptor and one mapping of a segment per process, however many ranks (threads) of it live here: closing any
// descriptor of a file drops all fcntl locks that the process has on it. Internal to host/segment*.cpp.
#ifndef RINGBELL_HOST_SHARED_MAPPING_HPP_
#define RINGBELL_HOST_SHARED_MAPPING_HPP_

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <sys/stat.h>
#include <sys/types.h>

namespace ringbell::host {

class SharedMapping {
 public:
  /// Maps the whole object. @throws boost::interprocess::interprocess_exception
  SharedMapping(boost::interprocess::shared_memory_object object, const struct stat& info);

  [[nodiscard]] std::byte* base() const noexcept { return static_cast<std::byte*>(region_.get_address()); }
  [[nodiscard]] std::size_t bytes() const noexcept { return region_.get_size(); }
  [[nodiscard]] int fd() const noexcept { return object_.get_mapping_handle().handle; }
  [[nodiscard]] dev_t device() const noexcept { return device_; }
  [[nodiscard]] ino_t inode() const noexcept { return inode_; }
  [[nodiscard]] pid_t owner_pid() const noexcept { return owner_pid_; }

 private:
  boost::interprocess::shared_memory_object object_;
  boost::interprocess::mapped_region region_;
  dev_t device_;
  ino_t inode_;
  pid_t owner_pid_;
};

/// Held around every open, close and look-up of segment files in this process. Never held while waiting.
std::mutex& mapping_registry_mutex();
/// The mapping of this file, or null. Precondition: mutex held.
std::shared_ptr<SharedMapping> registered_mapping(dev_t device, ino_t inode);
/// Precondition: mutex held.
void register_mapping(const std::shared_ptr<SharedMapping>& mapping);
/// Gives up one reference; the last one closes. Takes the mutex itself.
void release_mapping(std::shared_ptr<SharedMapping>& mapping) noexcept;

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_SHARED_MAPPING_HPP_
