import pipelines


def test_the_lists_are_the_split_and_kinds_the_super_classes(small):
    products = small("stanford_online_products")
    dataset = pipelines.load("stanford_online_products", data_dir=products)
    assert dataset.train.super_labels.tolist() == [1, 1, 4, 4]
    assert dataset.test.super_labels.tolist() == [4, 4, 1]
    assert dataset.test.images[2] == str(products / "bicycle_final" / "111085124_7.JPG")
